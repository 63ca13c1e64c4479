//! Acquiring: exclusion, order, turns, waits, cancelling.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tenure::{ErrorKind, Released};

use crate::support::{another, client, holders, ms, settle, waiters};

#[tokio::test(start_paused = true)]
async fn one_holds_at_a_time_and_tokens_grow() {
    let (first, memory) = client();
    let clients: Vec<_> = (0..5).map(|n| another(&memory, 10 + n)).chain([first]).collect();
    let inside = Arc::new(AtomicBool::new(false));
    let last_token = Arc::new(std::sync::Mutex::new(0));
    let mut tasks = Vec::new();
    for n in 0..50 {
        let lock = clients[n % clients.len()].mutex("k").ttl(ms(600));
        let (inside, last_token) = (inside.clone(), last_token.clone());
        tasks.push(tokio::spawn(async move {
            let lease = lock.acquire().await.unwrap();
            assert!(!inside.swap(true, Ordering::SeqCst), "two inside");
            {
                let mut last = last_token.lock().unwrap();
                assert!(lease.token().get() > *last, "tokens must grow");
                *last = lease.token().get();
            }
            tokio::time::sleep(ms(7)).await;
            inside.store(false, Ordering::SeqCst);
            assert_eq!(lease.release().await.unwrap(), Released::Released);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    settle().await;
    assert_eq!(holders(&memory, "k").await, 0);
    assert_eq!(waiters(&memory, "k").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_try_does_not_wait_and_leaves_nothing() {
    let (tenure, memory) = client();
    let other = another(&memory, 2);
    let lease = tenure.mutex("k").try_acquire().await.unwrap().unwrap();
    assert!(tenure.mutex("k").try_acquire().await.unwrap().is_none(), "own client");
    assert!(other.mutex("k").try_acquire().await.unwrap().is_none(), "another client");
    let error = other.mutex("k").acquire_within(Duration::ZERO).await.unwrap_err();
    assert!(error.is_timed_out());
    assert_eq!(waiters(&memory, "k").await, 0);
    lease.release().await.unwrap();
    assert!(other.mutex("k").try_acquire().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_time_and_leaves_the_queue() {
    let (tenure, memory) = client();
    let other = another(&memory, 2);
    let _lease = tenure.mutex("k").acquire().await.unwrap();
    let began = tokio::time::Instant::now();
    let error = other.mutex("k").acquire_within(ms(700)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(
        error.to_string().starts_with("acquire_within \"k\" on memory: not granted within 700ms"),
        "{error}"
    );
    assert!(began.elapsed() < ms(705));
    settle().await;
    assert_eq!(waiters(&memory, "k").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_acquire_leaves_nothing_and_passes_the_turn_on() {
    let (tenure, memory) = client();
    let other = another(&memory, 2);
    let lease = tenure.mutex("k").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = other.mutex("k");
        async move { lock.acquire().await }
    });
    settle().await;
    assert_eq!(waiters(&memory, "k").await, 1);
    waiting.abort();
    settle().await;
    assert_eq!(waiters(&memory, "k").await, 0);
    lease.release().await.unwrap();
    assert_eq!(holders(&memory, "k").await, 0);
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_client_take_turns_on_one_grant() {
    let (tenure, _memory) = client();
    let first = tenure.mutex("k").acquire().await.unwrap();
    let raws = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let (lock, raws) = (tenure.mutex("k"), raws.clone());
        tasks.push(tokio::spawn(async move {
            let lease = lock.acquire().await.unwrap();
            raws.lock().unwrap().push(lease.token().get());
            lease.release().await.unwrap();
        }));
    }
    settle().await;
    first.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let tokens = raws.lock().unwrap().clone();
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "tokens grow with each turn: {tokens:?}");
    let distinct: std::collections::BTreeSet<_> = tokens.iter().map(|token| token >> 10).collect();
    assert_eq!(distinct.len(), 1, "one grant served all turns");
}

#[tokio::test(start_paused = true)]
async fn turns_are_bounded_so_that_another_client_gets_in() {
    let (tenure, memory) = client();
    let other = another(&memory, 2);
    let stop = Arc::new(AtomicBool::new(false));
    let turns = Arc::new(AtomicUsize::new(0));
    for _ in 0..4 {
        let (lock, stop, turns) = (tenure.mutex("k"), stop.clone(), turns.clone());
        tokio::spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let lease = lock.acquire().await.unwrap();
                turns.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(ms(1)).await;
                drop(lease);
            }
        });
    }
    tokio::time::sleep(ms(20)).await;
    let before = turns.load(Ordering::SeqCst);
    let lease = other.mutex("k").acquire_within(ms(200)).await.expect("must get in between");
    assert!(turns.load(Ordering::SeqCst) - before <= 60, "about 50 ms of turns at most");
    stop.store(true, Ordering::SeqCst);
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_renewal_every_task_has_a_grant_of_its_own() {
    let (tenure, _memory) = client();
    let lock = tenure.mutex("k").renewal(false).ttl(ms(500));
    let first = lock.acquire().await.unwrap();
    let second = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    settle().await;
    tokio::time::sleep(ms(300)).await;
    let raw = first.raw_token();
    first.release().await.unwrap();
    let second = second.await.unwrap();
    assert!(second.raw_token() > raw);
    assert!(second.remaining() > ms(450), "a full term: {:?}", second.remaining());
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_refused_with_a_clear_message() {
    let (tenure, memory) = client();
    for (term, part) in
        [(Duration::ZERO, "out of bounds"), (ms(99), "from 100ms to"), (Duration::MAX, "out of bounds")]
    {
        let error = tenure.mutex("k").ttl(term).acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(part), "{error}");
    }
    for key in ["", "a\nb", &"x".repeat(1025)] {
        let error = tenure.mutex(key).try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(!error.may_have_taken_effect());
    }
    let error = tenure.mutex("k").value("x".repeat(4097)).acquire().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("this one has 4097"), "{error}");
    assert_eq!(holders(&memory, "k").await, 0);
    let error = tenure::connect("mongo://user:secret@host").await.unwrap_err();
    assert!(error.to_string().contains("\"mongo:\""), "{error}");
    assert!(!format!("{error:?}").contains("secret"));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_a_path_prefix_of_another_is_another() {
    let (tenure, _memory) = client();
    let _a = tenure.mutex("a").acquire().await.unwrap();
    let _b = tenure.mutex("a/b").acquire_within(ms(10)).await.unwrap();
    let _c = tenure.mutex("A").acquire_within(ms(10)).await.unwrap();
}
