//! The mutex, through the core: who gets it, when, and with which token.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tenure::{ErrorKind, Tenure, Token};

use super::tools::*;
use crate::proxy::{Direction, Verdict};

cases! { locks:

/// Many tasks of many clients: never two inside, and tokens in the order of the holds.
async fn excludes(h) {
    let key = key("contended");
    let inside = Arc::new(AtomicBool::new(false));
    let last = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let tenure = h.tenure().await;
        for _ in 0..4 {
            let lock = tenure.mutex(&key).ttl(LONG);
            let (inside, last) = (inside.clone(), last.clone());
            tasks.spawn(async move {
                for _ in 0..10 {
                    let lease = lock.acquire().await.expect("acquired");
                    assert!(!inside.swap(true, Ordering::SeqCst), "two are inside");
                    let token = lease.token().get();
                    let before = last.swap(token, Ordering::SeqCst);
                    assert!(token > before, "token {token} after {before}");
                    assert_eq!(lease.token().raw(), lease.raw_token());
                    tokio::task::yield_now().await;
                    assert!(lease.is_held());
                    inside.store(false, Ordering::SeqCst);
                    lease.release().await.expect("released");
                }
            });
        }
    }
    tasks.join_all().await;
    is_free(h, &key).await;
    nothing_is_left(h).await;
}

/// A try answers at once, also within one client, and leaves nothing.
async fn a_try_does_not_wait(h) {
    let (one, other, key) = (h.tenure().await, h.tenure().await, key("try"));
    let lease = one.mutex(&key).ttl(LONG).try_acquire().await.expect("an answer").expect("it is free");
    for tenure in [&one, &other] {
        let begun = Instant::now();
        assert!(tenure.mutex(&key).ttl(LONG).try_acquire().await.expect("an answer").is_none());
        assert!(begun.elapsed() < SOON);
    }
    lease.release().await.expect("released");
    is_free(h, &key).await;
    nothing_is_left(h).await;
}

/// A wait that ends says so, names who is in the way, and leaves the queue.
async fn a_wait_that_is_over_leaves_nothing(h) {
    let (one, other, key) = (h.tenure().await, h.tenure().await, key("timeout"));
    let lease = one.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
    let wait = Duration::from_millis(150);
    for tenure in [&one, &other] {
        let begun = Instant::now();
        let error = tenure.mutex(&key).ttl(LONG).acquire_within(wait).await.expect_err("it is held");
        assert!(error.is_timed_out() && error.kind() == ErrorKind::TimedOut, "{error}");
        assert!(error.to_string().contains(key.as_str()), "{error}");
        assert!(begun.elapsed() >= wait && begun.elapsed() < wait + SOON, "{:?}", begun.elapsed());
    }
    eventually(SOON, "the queue", 0, || async {
        other.engine().look(&key).await.expect("a view").waiters.len()
    }).await;
    lease.release().await.expect("released");
    is_free(h, &key).await;
    nothing_is_left(h).await;
}

/// A wait of zero means one try.
async fn r5_a_wait_of_zero_is_one_try(h) {
    let (one, other, key) = (h.tenure().await, h.tenure().await, key("zero"));
    let lock = other.mutex(&key).ttl(LONG);
    let lease = one.mutex(&key).ttl(LONG).acquire_within(Duration::ZERO).await.expect("it is free");
    let error = lock.acquire_within(Duration::ZERO).await.expect_err("it is held");
    assert!(error.is_timed_out(), "{error}");
    lease.release().await.expect("released");
    is_free(h, &key).await;
    lock.acquire_within(Duration::ZERO).await.expect("it is free").release().await.expect("released");
    nothing_is_left(h).await;
}

/// Terms out of bounds are refused with the bounds, and nothing is sent.
async fn r5_bad_terms_are_refused_before_any_request(h) {
    let (tenure, key) = (h.tenure().await, key("terms"));
    let lease = tenure.mutex(&key).ttl(LONG).renewal(false).acquire().await.expect("acquired");
    let (shortest, longest) = (tenure.promises().shortest_term, tenure.promises().longest_term);
    let sent = || h.faults().map(|faults| faults.line().requests());
    let before = sent();
    for bad in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(500),
        shortest - Duration::from_nanos(1),
        longest + Duration::from_nanos(1),
        Duration::from_millis(u64::MAX),
        Duration::MAX,
    ] {
        let lock = tenure.mutex(format!("{key}/bad")).ttl(bad);
        let results = [
            lock.acquire().await.map(drop),
            lock.try_acquire().await.map(drop),
            lock.acquire_within(LONG).await.map(drop),
            lease.extend(bad).await,
        ];
        for result in results {
            let error = result.expect_err("a bad term");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bad:?}: {error}");
            assert!(!error.may_have_taken_effect(), "{bad:?}: {error}");
            let text = error.to_string();
            // A long one is told in days.
            let days = format!("{} days", longest.as_secs() / 86_400);
            let told = text.contains(&format!("{longest:?}")) || text.contains(&days);
            assert!(told && text.contains(&format!("{shortest:?}")), "{bad:?}: no bounds in {text}");
        }
    }
    assert_eq!(sent(), before, "something was sent");
    assert!(h.remaining(&key).await.expect("it is still held") > LONG - SOON);
    lease.release().await.expect("released");
    nothing_is_left(h).await;
}

/// Terms are rounded up to whole milliseconds, never down: it shows only in what is sent.
async fn r5_terms_are_rounded_up(h) needs [Words] {
    let (tenure, key) = (h.tenure().await, key("rounded"));
    let sent = Arc::new(Mutex::new(Vec::new()));
    let (name, for_rule) = (key.clone(), sent.clone());
    h.faults().expect("needed").line().rule(move |message| {
        if message.direction == Direction::Request && message.holds(name.as_str()) {
            let terms = ["20000", "20001", "25000", "25001"].into_iter().filter(|term| message.holds(term));
            for_rule.lock().unwrap_or_else(PoisonError::into_inner).extend(terms);
        }
        Verdict::Pass
    });
    let lock = tenure.mutex(&key).ttl(Duration::from_secs(20) + Duration::from_nanos(1)).renewal(false);
    let lease = lock.acquire().await.expect("acquired");
    lease.extend(Duration::from_secs(25) + Duration::from_nanos(1)).await.expect("extended");
    lease.release().await.expect("released");
    let mut sent = sent.lock().unwrap_or_else(PoisonError::into_inner).clone();
    // A script that the server did not know yet is sent twice.
    sent.dedup();
    assert_eq!(sent, ["20001", "25001"]);
}

/// Names that are not allowed are refused, shown without control characters, and nothing is sent.
async fn r9_bad_keys_are_refused_before_any_request(h) {
    let tenure = h.tenure().await;
    let sent = || h.faults().map(|faults| faults.line().requests());
    let before = sent();
    for bad in ["", "a\nb", "\0", "a\u{1b}[31m", &"x".repeat(1025), &"ä".repeat(513)] {
        let lock = tenure.mutex(bad);
        for result in [lock.acquire().await.map(drop), lock.try_acquire().await.map(drop)] {
            let error = result.expect_err("a bad key");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(!error.may_have_taken_effect(), "{error}");
            assert!(!error.to_string().chars().any(char::is_control), "{error}");
        }
    }
    assert_eq!(sent(), before, "something was sent");
    nothing_is_left(h).await;
}

/// A waiter has the lock soon after it is given back, in another client and in the same.
async fn a_waiter_gets_what_is_given_back(h) {
    let (one, other, key) = (h.tenure().await, h.tenure().await, key("wait"));
    for tenure in [&other, &one] {
        let lease = one.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
        let waiting = waiting(tenure, &key, LONG);
        settle().await;
        assert!(!waiting.is_finished());
        let token = lease.token();
        lease.release().await.expect("released");
        let next = within(SOON, "the lock", waiting).await.expect("no panic");
        assert!(next.token() > token);
        assert!(next.is_held());
        next.release().await.expect("released");
    }
    is_free(h, &key).await;
    nothing_is_left(h).await;
}

/// A waiter has the lock soon after a holder ran out that nobody renews.
async fn a_waiter_gets_what_runs_out(h) {
    let (one, other, key) = (h.tenure().await, h.tenure().await, key("run-out"));
    let lease = one.mutex(&key).ttl(h.ttl()).renewal(false).acquire().await.expect("acquired");
    let begun = Instant::now();
    let waiting = waiting(&other, &key, LONG);
    let next = within(h.ttl() + SOON, "the lock", waiting).await.expect("no panic");
    assert!(!lease.is_held(), "two leases are valid");
    assert!(begun.elapsed() > h.ttl() / 2, "{:?}", begun.elapsed());
    assert!(next.token() > lease.token());
}

/// A pushed grant is soon prolonged to its full term, also where renewal is off.
async fn r7_a_pushed_grant_gets_its_full_term(h) {
    let (one, other, key) = (h.tenure().await, h.tenure().await, key("full"));
    for renewal in [true, false] {
        let lease = one.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
        let lock = other.mutex(&key).ttl(LONG).renewal(renewal);
        let waiting = tokio::spawn(async move { lock.acquire().await.expect("acquired") });
        settle().await;
        lease.release().await.expect("released");
        let next = within(SOON, "the lock", waiting).await.expect("no panic");
        eventually(SOON, "the full term", true, || async {
            h.remaining(&key).await.is_some_and(|left| left > LONG - SOON) && next.remaining() > LONG - SOON - LONG / 20
        })
        .await;
        next.release().await.expect("released");
    }
    nothing_is_left(h).await;
}

/// Clients get the lock in the order in which they asked.
async fn r8_first_come_first_served(h) {
    let key = key("fifo");
    let holder = h.tenure().await;
    let lease = holder.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = tokio::task::JoinSet::new();
    let mut clients = Vec::new();
    for number in 0..8usize {
        let tenure = h.tenure().await;
        let (lock, order) = (tenure.mutex(&key).ttl(LONG), order.clone());
        clients.push(tenure);
        tasks.spawn(async move {
            let lease = lock.acquire().await.expect("acquired");
            order.lock().unwrap_or_else(PoisonError::into_inner).push((number, lease.token()));
            lease.release().await.expect("released");
        });
        eventually(SOON, "its place", number + 1, || async {
            holder.engine().look(&key).await.expect("a view").waiters.len()
        })
        .await;
    }
    lease.release().await.expect("released");
    tasks.join_all().await;
    let order = order.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert!(order.is_sorted(), "{order:?}");
    assert!(order.iter().map(|(_, token)| *token).is_sorted_by(|a, b| a < b), "{order:?}");
    nothing_is_left(h).await;
}

/// Tasks of one client take turns in the order in which they asked, on one grant, each with a token
/// of its own.
async fn r8_tasks_of_a_client_take_turns_in_order(h) {
    let (tenure, key) = (h.tenure().await, key("turns"));
    let lease = tenure.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
    let (raw, mut last) = (lease.raw_token(), lease.token());
    let mut waiting = Vec::new();
    for _ in 0..20 {
        let lock = tenure.mutex(&key).ttl(LONG);
        let mut task = Box::pin(async move { lock.acquire().await.expect("acquired") });
        assert!(futures_poll(task.as_mut()).await.is_none());
        waiting.push(task);
    }
    lease.release().await.expect("released");
    let mut shared = 0;
    for task in waiting {
        let lease = within(SOON, "the turn", task).await;
        assert!(lease.token() > last, "{} after {last}", lease.token());
        shared += u32::from(lease.raw_token() == raw);
        last = lease.token();
        lease.release().await.expect("released");
    }
    assert!(shared > 0, "no turn was passed on within the client");
    nothing_is_left(h).await;
}

/// Another client comes to its turn although the tasks of one never stop asking.
async fn r8_turns_are_bounded_when_others_wait(h) {
    let (busy, other, key) = (h.tenure().await, h.tenure().await, key("bounded"));
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (lock, stop) = (busy.mutex(&key).ttl(LONG), stop.clone());
        tasks.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let lease = lock.acquire().await.expect("acquired");
                tokio::time::sleep(Duration::from_millis(1)).await;
                lease.release().await.expect("released");
            }
        });
    }
    let mut last = None::<Token>;
    for _ in 0..5 {
        let lease = within(SOON, "the other client's turn", waiting(&other, &key, LONG)).await.expect("no panic");
        assert!(Some(lease.token()) > last);
        last = Some(lease.token());
        lease.release().await.expect("released");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stop.store(true, Ordering::SeqCst);
    tasks.join_all().await;
    nothing_is_left(h).await;
}

/// Requests that are ready together travel together.
async fn r16_requests_travel_together(h) needs [Faults] {
    let (tenure, line) = (h.tenure().await, h.faults().expect("needed").line());
    let base = key("flight");
    let (requests, reads) = (line.requests(), line.reads());
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..256 {
        let lock = tenure.mutex(format!("{base}/{number}")).ttl(LONG);
        tasks.spawn(async move { lock.acquire().await.expect("acquired").release().await.expect("released") });
    }
    tasks.join_all().await;
    let (requests, reads) = (line.requests() - requests, line.reads() - reads);
    assert!(reads < 256, "{requests} requests for 256 locks came in {reads} pieces");
    nothing_is_left(h).await;
}

/// A thousand keys at once from one client.
async fn a_thousand_keys_at_once(h) {
    let (tenure, base) = (h.tenure().await, key("thousand"));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..1000 {
        let lock = tenure.mutex(format!("{base}/{number}")).ttl(LONG);
        tasks.spawn(async move { lock.acquire().await.expect("acquired") });
    }
    let leases = tasks.join_all().await;
    for lease in &leases {
        assert_eq!(h.truth(lease.key()).await, [lease.owner().to_string()]);
    }
    let begun = Instant::now();
    drop(leases);
    nothing_is_left(h).await;
    assert!(begun.elapsed() < SOON);
}

}

/// Polls a future once.
async fn futures_poll<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut future).poll(context) {
            std::task::Poll::Ready(value) => Some(value),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

/// A task that acquires.
fn waiting(tenure: &Tenure, key: &tenure::Key, term: Duration) -> tokio::task::JoinHandle<tenure::Lease> {
    super::tools::acquiring(tenure.mutex(key).ttl(term))
}
