//! What the memory engine does, on a paused clock.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use tokio::time::{advance, sleep};

use super::*;
use crate::engine::{Busy, Grant, Mode, Woken};
use crate::time::{pushed_term, refresh_interval};

const TERM: Duration = Duration::from_secs(30);
const EXCLUSIVE: Mode = Mode::Exclusive;

fn engine() -> Memory {
    Memory::new(&Background::on_this_runtime(1))
}

fn ask(owner: u128, mode: Mode) -> Claim {
    let key = Key::new("orders/42").unwrap();
    Claim { key, owner: Owner::from_id(owner), mode, term: TERM, value: Vec::new(), join: true }
}

async fn granted(engine: &Memory, claim: &Claim) -> Grant {
    match engine.claim(claim).await.unwrap() {
        Answer::Granted(grant) => grant,
        Answer::Busy(busy) => panic!("busy: {busy:?}"),
    }
}

async fn busy(engine: &Memory, claim: &Claim) -> Busy {
    match engine.claim(claim).await.unwrap() {
        Answer::Busy(busy) => busy,
        Answer::Granted(grant) => panic!("granted: {grant:?}"),
    }
}

async fn renew(engine: &Memory, claim: &Claim) -> Renewed {
    engine.renew(&[claim.stake()]).await.remove(0)
}

async fn release(engine: &Memory, claim: &Claim) -> Released {
    engine.release(&claim.stake()).await.unwrap()
}

fn woken(wake: &mut Wake) -> Option<Woken> {
    match std::pin::Pin::new(wake).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(woken) => Some(woken),
        Poll::Pending => None,
    }
}

fn pushed(wake: &mut Wake) -> Option<Grant> {
    woken(wake).map(|woken| match woken {
        Woken::Granted(grant) => grant,
        Woken::Ask => panic!("a hint, not a grant"),
    })
}

#[tokio::test(start_paused = true)]
async fn a_release_hands_the_key_to_the_head_with_a_short_term_and_a_new_number() {
    let engine = engine();
    let another = engine.client(&Background::on_this_runtime(2));
    let first = granted(&engine, &ask(1, EXCLUSIVE)).await;
    assert_eq!((first.term, first.made), (TERM, true));
    let mut second = busy(&another, &ask(2, EXCLUSIVE)).await;
    let mut third = busy(&engine, &ask(3, EXCLUSIVE)).await;
    assert_eq!((second.ahead, third.ahead), (Some(0), Some(1)));
    assert_eq!(woken(&mut second.wake), None);
    assert_eq!(release(&engine, &ask(1, EXCLUSIVE)).await, Released::Released);
    let grant = pushed(&mut second.wake).unwrap();
    assert_eq!((grant.term, grant.made), (pushed_term(TERM), false));
    assert!(grant.raw > first.raw);
    assert_eq!(woken(&mut third.wake), None, "a departure wakes nobody whom it does not admit");
    assert_eq!(release(&engine, &ask(1, EXCLUSIVE)).await, Released::WasLost);
}

#[tokio::test(start_paused = true)]
async fn a_dead_waiter_costs_three_refreshes_at_most() {
    let engine = engine();
    granted(&engine, &ask(1, EXCLUSIVE)).await;
    let mut dead = busy(&engine, &ask(2, EXCLUSIVE)).await;
    let mut next = busy(&engine, &ask(3, EXCLUSIVE)).await;
    release(&engine, &ask(1, EXCLUSIVE)).await;
    assert!(pushed(&mut dead.wake).is_some(), "it was told, and dies");
    advance(pushed_term(TERM) - Duration::from_millis(1)).await;
    assert_eq!(engine.peek(&ask(1, EXCLUSIVE).key), (vec![Owner::from_id(2)], vec![Owner::from_id(3)]));
    assert!(matches!(renew(&engine, &ask(3, EXCLUSIVE)).await, Renewed::Waiting(_)));
    advance(Duration::from_millis(1)).await;
    assert!(matches!(renew(&engine, &ask(3, EXCLUSIVE)).await, Renewed::Kept(term) if term == TERM));
    assert!(pushed(&mut next.wake).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_nobody_can_tell_is_skipped_and_a_grant_nobody_takes_is_handed_back() {
    let engine = engine();
    granted(&engine, &ask(1, EXCLUSIVE)).await;
    drop(busy(&engine, &ask(2, EXCLUSIVE)).await);
    let told = busy(&engine, &ask(3, EXCLUSIVE)).await;
    let mut last = busy(&engine, &ask(4, EXCLUSIVE)).await;
    release(&engine, &ask(1, EXCLUSIVE)).await;
    assert!(matches!(renew(&engine, &ask(2, EXCLUSIVE)).await, Renewed::Lost));
    assert_eq!(woken(&mut last.wake), None);
    drop(told); // it holds the key, and nobody will ever know
    assert!(pushed(&mut last.wake).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_late_hand_back_does_not_take_what_was_granted_anew() {
    let engine = engine();
    granted(&engine, &ask(1, EXCLUSIVE)).await;
    let waiting = busy(&engine, &ask(2, EXCLUSIVE)).await;
    release(&engine, &ask(1, EXCLUSIVE)).await;
    // The push is on its way; a refresh tells first, and the number is asked for.
    assert!(matches!(renew(&engine, &ask(2, EXCLUSIVE)).await, Renewed::Kept(_)));
    let grant = granted(&engine, &ask(2, EXCLUSIVE)).await;
    assert!(!grant.made);
    drop(waiting);
    assert!(matches!(renew(&engine, &ask(2, EXCLUSIVE)).await, Renewed::Kept(_)));
}

#[tokio::test(start_paused = true)]
async fn places_run_out_unless_they_are_refreshed() {
    let engine = engine();
    granted(&engine, &ask(1, EXCLUSIVE)).await;
    let _second = busy(&engine, &ask(2, EXCLUSIVE)).await;
    let _third = busy(&engine, &ask(3, EXCLUSIVE)).await;
    for _ in 0..4 {
        advance(refresh_interval(TERM)).await;
        assert!(matches!(renew(&engine, &ask(3, EXCLUSIVE)).await, Renewed::Waiting(_)));
    }
    assert!(matches!(renew(&engine, &ask(2, EXCLUSIVE)).await, Renewed::Lost));
    let Renewed::Waiting(place) = renew(&engine, &ask(3, EXCLUSIVE)).await else { panic!("not waiting") };
    assert_eq!(place.ahead, Some(0));
}

#[tokio::test(start_paused = true)]
async fn the_head_asks_when_the_hold_ends_and_others_when_their_place_needs_it() {
    let engine = engine();
    let holder = Claim { term: Duration::from_millis(500), ..ask(1, EXCLUSIVE) };
    granted(&engine, &holder).await;
    let head = busy(&engine, &ask(2, EXCLUSIVE)).await;
    let next = busy(&engine, &ask(3, EXCLUSIVE)).await;
    assert_eq!(head.ask_within, Duration::from_millis(502));
    assert_eq!(next.ask_within, refresh_interval(TERM));
    sleep(head.ask_within).await;
    assert!(matches!(renew(&engine, &ask(2, EXCLUSIVE)).await, Renewed::Kept(_)));
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_at_expiry_does_not_pass_who_waits() {
    let engine = engine();
    granted(&engine, &Claim { term: Duration::from_millis(500), ..ask(1, EXCLUSIVE) }).await;
    let mut head = busy(&engine, &ask(2, EXCLUSIVE)).await;
    advance(Duration::from_millis(600)).await;
    let newcomer = Claim { join: false, ..ask(3, EXCLUSIVE) };
    assert_eq!(busy(&engine, &newcomer).await.ahead, None);
    assert!(pushed(&mut head.wake).is_some());
    assert!(matches!(renew(&engine, &newcomer).await, Renewed::Lost), "a try leaves nothing");
}

#[tokio::test(start_paused = true)]
async fn asking_twice_is_asking_once_and_changes_the_value_but_never_the_term() {
    let engine = engine();
    let first = granted(&engine, &ask(1, EXCLUSIVE)).await;
    advance(Duration::from_secs(10)).await;
    let again = Claim { value: b"new".to_vec(), ..ask(1, EXCLUSIVE) };
    let second = granted(&engine, &again).await;
    assert!(second.raw > first.raw && !second.made);
    assert_eq!(second.term, TERM - Duration::from_secs(10));
    let view = engine.look(&again.key).await.unwrap();
    assert_eq!((view.holders.len(), view.holders[0].value.as_slice()), (1, b"new".as_slice()));
    let mut waiting = busy(&engine, &ask(2, EXCLUSIVE)).await;
    let twice = busy(&engine, &ask(2, EXCLUSIVE)).await;
    assert_eq!(twice.ahead, Some(0));
    drop(twice);
    release(&engine, &again).await;
    assert!(pushed(&mut waiting.wake).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_never_shortens_and_never_creates() {
    let engine = engine();
    granted(&engine, &ask(1, EXCLUSIVE)).await;
    let short = Claim { term: Duration::from_secs(1), ..ask(1, EXCLUSIVE) };
    assert!(matches!(renew(&engine, &short).await, Renewed::Kept(left) if left == TERM));
    advance(TERM).await;
    assert!(matches!(renew(&engine, &ask(1, EXCLUSIVE)).await, Renewed::Lost));
    assert_eq!(engine.census(), Census::default());
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_converted_without_a_gap_or_not_at_all() {
    let engine = engine();
    let written = granted(&engine, &ask(1, EXCLUSIVE)).await;
    let mut reader = busy(&engine, &ask(2, Mode::Shared)).await;
    let read = granted(&engine, &ask(1, Mode::Shared)).await;
    assert!(read.raw > written.raw && !read.made);
    assert!(pushed(&mut reader.wake).is_some(), "readers come in when a writer becomes a reader");
    let mut refused = busy(&engine, &ask(1, EXCLUSIVE)).await;
    assert_eq!(refused.ahead, None);
    assert!(matches!(renew(&engine, &ask(1, Mode::Shared)).await, Renewed::Kept(_)));
    release(&engine, &ask(2, Mode::Shared)).await;
    assert_eq!(woken(&mut refused.wake), Some(Woken::Ask));
    granted(&engine, &ask(1, EXCLUSIVE)).await;
}

#[tokio::test(start_paused = true)]
async fn a_writer_is_not_starved_and_permits_are_weighed() {
    let engine = engine();
    granted(&engine, &ask(1, Mode::Shared)).await;
    let mut writer = busy(&engine, &ask(2, EXCLUSIVE)).await;
    let mut reader = busy(&engine, &ask(3, Mode::Shared)).await;
    release(&engine, &ask(1, Mode::Shared)).await;
    assert!(pushed(&mut writer.wake).is_some() && woken(&mut reader.wake).is_none());

    let take =
        |owner, take| Claim { key: Key::new("pool").unwrap(), ..ask(owner, Mode::Permits { take, of: 5 }) };
    granted(&engine, &take(1, 3)).await;
    granted(&engine, &take(2, 1)).await;
    let mut large = busy(&engine, &take(3, 2)).await;
    let mut small = busy(&engine, &take(4, 1)).await;
    let other = Claim { mode: Mode::Permits { take: 1, of: 6 }, ..take(5, 1) };
    let error = engine.claim(&other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("total of 5 permits, not 6"), "{error}");
    release(&engine, &take(2, 1)).await;
    assert!(pushed(&mut large.wake).is_some() && woken(&mut small.wake).is_none());
    release(&engine, &take(1, 3)).await;
    assert!(pushed(&mut small.wake).is_some());
}

#[tokio::test(start_paused = true)]
async fn leaving_the_queue_lets_the_next_one_in() {
    let engine = engine();
    granted(&engine, &ask(1, Mode::Shared)).await;
    let _writer = busy(&engine, &ask(2, EXCLUSIVE)).await;
    let mut reader = busy(&engine, &ask(3, Mode::Shared)).await;
    assert_eq!(release(&engine, &ask(2, EXCLUSIVE)).await, Released::Released);
    assert!(pushed(&mut reader.wake).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_bounded() {
    let engine = engine();
    granted(&engine, &ask(1, EXCLUSIVE)).await;
    let mut places = Vec::new();
    for owner in 2..2 + LONGEST_QUEUE {
        places.push(busy(&engine, &ask(owner as u128, EXCLUSIVE)).await);
    }
    let error = engine.claim(&ask(u128::MAX, EXCLUSIVE)).await.unwrap_err();
    assert_eq!((error.kind(), error.may_have_taken_effect()), (ErrorKind::Full, false));
}

#[tokio::test(start_paused = true)]
async fn a_note_needs_the_hold_and_outlives_it() {
    let engine = engine();
    let claim = ask(1, EXCLUSIVE);
    let done = Record(b"done".to_vec());
    assert!(engine.note(&claim.stake(), &done).await.unwrap_err().is_lost());
    granted(&engine, &claim).await;
    let view = engine.look(&claim.key).await.unwrap();
    engine.note(&claim.stake(), &done).await.unwrap();
    assert_eq!(view.wake.await, Woken::Ask);
    release(&engine, &claim).await;
    advance(Duration::from_secs(60)).await;
    let view = engine.look(&claim.key).await.unwrap();
    assert_eq!(view.note, Some((done, Duration::from_secs(60))));
    assert!(view.holders.is_empty());
}

#[tokio::test(start_paused = true)]
async fn listing_goes_in_pages_and_shows_what_is_held() {
    let engine = engine();
    for number in 0..PAGE + 5 {
        let key = Key::new(format!("a/{number:05}")).unwrap();
        granted(&engine, &Claim { key, ..ask(1, EXCLUSIVE) }).await;
    }
    granted(&engine, &Claim { key: Key::new("b").unwrap(), ..ask(1, EXCLUSIVE) }).await;
    let page = engine.list("a/", None).await.unwrap();
    assert_eq!((page.keys.len(), page.keys[0].as_str()), (PAGE, "a/00000"));
    let rest = engine.list("a/", page.next).await.unwrap();
    assert_eq!((rest.keys.len(), rest.next), (5, None));
    advance(TERM).await;
    assert!(engine.list("", None).await.unwrap().keys.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_ran_out_is_removed_by_other_requests() {
    let engine = engine();
    for number in 0..20 {
        let key = Key::new(format!("{number}")).unwrap();
        granted(&engine, &Claim { key, ..ask(1, EXCLUSIVE) }).await;
    }
    advance(TERM).await;
    for _ in 0..25 {
        release(&engine, &ask(2, EXCLUSIVE)).await;
    }
    assert!(engine.store.lock().keys.is_empty());
}

#[tokio::test(start_paused = true)]
async fn terms_out_of_bounds_are_refused() {
    let engine = engine();
    for term in [Duration::ZERO, Duration::from_millis(99), LONGEST_TERM + Duration::from_millis(1)] {
        let error = engine.claim(&Claim { term, ..ask(1, EXCLUSIVE) }).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("on memory"), "{error}");
    }
    assert_eq!(engine.census(), Census::default());
}

#[tokio::test(start_paused = true)]
async fn numbers_start_at_the_clock_so_that_a_new_store_goes_on_above() {
    let background = Background::on_this_runtime(1);
    let before = granted(&Memory::new(&background), &ask(1, EXCLUSIVE)).await;
    advance(Duration::from_millis(5)).await;
    let after = granted(&Memory::new(&background), &ask(1, EXCLUSIVE)).await;
    assert!(after.raw > before.raw);
}
