//! Queues: who is next, and how a waiter learns of it.

use std::time::Duration;

use tenure::engine::{Answer, Released, Renewed};

use tenure::{ErrorKind, pushed_term, refresh_interval};

use super::tools::*;

cases! { queues:

/// A release hands the key to the one who waits, and tells it.
async fn r7_hand_over_is_pushed(h) {
    let (one, other, key) = (h.engine().await, h.engine().await, key("hand-over"));
    let holder = take(&*one, &key, LONG).await;
    let (waiter, busy) = wait_for(&*other, &key, LONG).await;
    assert_eq!(busy.ahead, Some(0));
    assert!(busy.ask_within <= refresh_interval(LONG), "{busy:?}");
    give_back(&*one, &holder).await;
    let grant = pushed(busy).await;
    assert!(!grant.made);
    assert!(grant.raw > holder.raw.expect("granted"), "{grant:?} after {holder:?}");
    assert_eq!(grant.term, pushed_term(LONG), "a pushed grant has a short term");
    held_by(h, &waiter).await;
    let remaining = h.remaining(&key).await.expect("it is held");
    assert!(remaining <= pushed_term(LONG), "a pushed grant was stored for {remaining:?}");
    give_back(&*other, &waiter).await;
    nothing_is_left(h).await;
}

/// A pushed grant can be prolonged to its full term, and ends by itself if it is not.
async fn r7_a_pushed_grant_is_prolonged_or_ends(h) {
    let (engine, key) = (h.engine().await, key("prolonged"));
    let holder = take(&*engine, &key, LONG).await;
    let (waiter, busy) = wait_for(&*engine, &key, LONG).await;
    give_back(&*engine, &holder).await;
    pushed(busy).await;
    let answers = engine.renew(std::slice::from_ref(&waiter)).await;
    assert!(matches!(answers[..], [Renewed::Kept(term)] if term >= LONG - SOON), "{answers:?}");
    assert!(h.remaining(&key).await.expect("held") > LONG - SOON);

    let (_dead, busy) = wait_for(&*engine, &key, h.ttl()).await;
    give_back(&*engine, &waiter).await;
    pushed(busy).await;
    eventually(h.ttl() + SOON, "the hold of a dead waiter", Vec::<String>::new(), || h.truth(&key)).await;
}

/// A departure wakes nobody but the one it lets in.
async fn r7_a_departure_wakes_only_whom_it_admits(h) {
    let (engine, key) = (h.engine().await, key("herd"));
    let mut holder = take(&*engine, &key, LONG).await;
    let mut waiting = std::collections::VecDeque::new();
    for _ in 0..4 {
        waiting.push_back(wait_for(&*engine, &key, LONG).await);
    }
    while let Some((next, busy)) = waiting.pop_front() {
        give_back(&*engine, &holder).await;
        pushed(busy).await;
        for (_, busy) in &mut waiting {
            let woken = tokio::time::timeout(Duration::from_millis(20), &mut busy.wake).await;
            assert!(woken.is_err(), "somebody behind was woken: {woken:?}");
        }
        holder = next;
    }
}

/// Clients are served in the order in which they came.
async fn r8_first_come_first_served(h) {
    let key = key("fifo");
    let first = h.engine().await;
    let mut holder = take(&*first, &key, LONG).await;
    let mut waiting = Vec::new();
    for place in 0..8 {
        let engine = h.engine().await;
        let (stake, busy) = wait_for(&*engine, &key, LONG).await;
        assert_eq!(busy.ahead, Some(place));
        waiting.push((engine, stake, busy));
    }
    let mut last = holder.raw.expect("granted");
    // A client that ends gives up what it holds, where the store can tell.
    let mut served = Vec::new();
    for (engine, stake, busy) in waiting {
        give_back(&*first, &holder).await;
        let grant = pushed(busy).await;
        assert!(grant.raw > last, "{} after {last}", grant.raw);
        held_by(h, &stake).await;
        last = grant.raw;
        holder = stake;
        served.push(engine);
    }
}

/// A newcomer who finds the key just run out does not pass those who wait.
async fn r8_a_newcomer_does_not_pass_a_queue_after_expiry(h) {
    let (engine, late, key) = (h.engine().await, h.engine().await, key("newcomer"));
    for join in [false, true] {
        let _holder = take(&*engine, &key, h.ttl()).await;
        let (waiter, busy) = wait_for(&*engine, &key, LONG).await;
        eventually(h.ttl() + SOON, "expiry", true, || async {
            h.truth(&key).await.first() != Some(&_holder.owner.to_string())
        })
        .await;
        let newcomer = tenure::engine::Claim { join, ..claim(&key, LONG) };
        let answer = late.claim(&newcomer).await;
        assert!(matches!(answer, Ok(Answer::Busy(_))), "the newcomer got in: {answer:?}");
        let grant = pushed(busy).await;
        assert!(!grant.made);
        held_by(h, &waiter).await;
        late.release(&newcomer.stake()).await.expect("left");
        give_back(&*engine, &waiter).await;
        nothing_is_left(h).await;
    }
}

/// At expiry, refreshing a place gives the key to the head.
async fn r8_a_refresh_after_expiry_hands_over_to_the_head(h) {
    let (engine, key) = (h.engine().await, key("kick"));
    let _holder = take(&*engine, &key, h.ttl()).await;
    let (head, _lost) = wait_for(&*engine, &key, LONG).await;
    let (second, _wake) = wait_for(&*engine, &key, LONG).await;
    tokio::time::sleep(h.ttl() + Duration::from_millis(20)).await;
    let answers = engine.renew(std::slice::from_ref(&second)).await;
    assert!(matches!(answers[..], [Renewed::Waiting(_)]), "{answers:?}");
    held_by(h, &head).await;
}

/// A push that gets lost is found by refreshing the place: the waiter learns that it holds the key
/// and gets a number by asking again.
async fn r7_a_lost_push_is_found(h) {
    let (engine, key) = (h.engine().await, key("lost-push"));
    let holder = take(&*engine, &key, LONG).await;
    let mine = claim(&key, LONG);
    let busy = busy_of(engine.claim(&mine).await);
    give_back(&*engine, &holder).await;
    held_by(h, &mine.stake()).await;
    // Nobody reads the push: to the engine it is delivered, to us it is lost.
    let answers = engine.renew(&[mine.stake()]).await;
    assert!(matches!(answers[..], [Renewed::Kept(_)]), "{answers:?}");
    let grant = grant_of(engine.claim(&mine).await);
    assert!(!grant.made);
    assert!(grant.raw > holder.raw.expect("granted"));
    drop(busy);
    give_back(&*engine, &mine.stake()).await;
    nothing_is_left(h).await;
}

/// A push for somebody who has gone is given back: the next in line has it.
async fn r7_a_push_that_nobody_takes_is_given_back(h) {
    let (engine, key) = (h.engine().await, key("gone"));
    let holder = take(&*engine, &key, LONG).await;
    let (_gone, busy) = wait_for(&*engine, &key, LONG).await;
    drop(busy);
    give_back(&*engine, &holder).await;
    eventually(SOON, "the grant nobody took", Vec::<String>::new(), || h.truth(&key)).await;
    nothing_is_left(h).await;
}

/// Leaving the queue lets those behind move up.
async fn a_waiter_can_leave(h) {
    let (engine, key) = (h.engine().await, key("leave"));
    let holder = take(&*engine, &key, LONG).await;
    let (leaver, _wake) = wait_for(&*engine, &key, LONG).await;
    let (stayer, busy) = wait_for(&*engine, &key, LONG).await;
    give_back(&*engine, &leaver).await;
    assert_eq!(engine.release(&leaver).await.expect("an answer"), Released::WasLost);
    assert_eq!(engine.look(&key).await.expect("a view").waiters, [stayer.owner]);
    give_back(&*engine, &holder).await;
    pushed(busy).await;
    held_by(h, &stayer).await;
    give_back(&*engine, &stayer).await;
    nothing_is_left(h).await;
}

/// Leaving just when the key was handed over hands it on.
async fn a_waiter_that_leaves_as_it_is_served_hands_on(h) {
    let (engine, key) = (h.engine().await, key("hands-on"));
    for _ in 0..50 {
        let holder = take(&*engine, &key, LONG).await;
        let (leaver, _wake) = wait_for(&*engine, &key, LONG).await;
        let (stayer, busy) = wait_for(&*engine, &key, LONG).await;
        let (released, left) = tokio::join!(engine.release(&holder), engine.release(&leaver));
        assert_eq!((released.expect("released"), left.expect("left")), (Released::Released, Released::Released));
        pushed(busy).await;
        held_by(h, &stayer).await;
        give_back(&*engine, &stayer).await;
    }
    nothing_is_left(h).await;
}

/// A waiter that died at the head of the queue, unnoticed, costs three refreshes at most.
async fn r7_a_dead_waiter_at_the_head(h) {
    let (engine, key) = (h.engine().await, key("dead-head"));
    let term = Duration::from_millis(600);
    let holder = take(&*engine, &key, LONG).await;
    // It keeps its wake, so the push is delivered; but it does nothing any more.
    let (_dead, _kept) = wait_for(&*engine, &key, term).await;
    let (alive, mut busy) = wait_for(&*engine, &key, term).await;
    let refresh = refresh_interval(term);
    give_back(&*engine, &holder).await;
    let begun = std::time::Instant::now();
    loop {
        match tokio::time::timeout(refresh, &mut busy.wake).await {
            Ok(woken) => break assert!(matches!(woken, tenure::engine::Woken::Granted(_)), "{woken:?}"),
            Err(_) => drop(engine.renew(std::slice::from_ref(&alive)).await),
        }
    }
    assert!(begun.elapsed() < refresh * 5 + Duration::from_millis(200), "it took {:?}", begun.elapsed());
    held_by(h, &alive).await;
}

/// A waiter that does not refresh its place is passed over, and told so when it asks.
async fn a_place_that_is_not_refreshed_is_lost(h) {
    let (engine, key) = (h.engine().await, key("stale"));
    let term = h.ttl();
    let holder = take(&*engine, &key, LONG).await;
    let (stale, _wake) = wait_for(&*engine, &key, term).await;
    let (fresh, busy) = wait_for(&*engine, &key, LONG).await;
    tokio::time::sleep(refresh_interval(term) * 3 + Duration::from_millis(50)).await;
    give_back(&*engine, &holder).await;
    pushed(busy).await;
    held_by(h, &fresh).await;
    let answers = engine.renew(std::slice::from_ref(&stale)).await;
    assert!(matches!(answers[..], [Renewed::Lost]), "{answers:?}");
    give_back(&*engine, &fresh).await;
    is_free(h, &key).await;
    nothing_is_left(h).await;
}

/// Waiters that give up do not make the queue slower for whoever comes later.
async fn waiters_that_give_up_leave_no_trace(h) {
    let (engine, key) = (h.engine().await, key("give-up"));
    let holder = take(&*engine, &key, LONG).await;
    for _ in 0..50 {
        let (stake, busy) = wait_for(&*engine, &key, LONG).await;
        assert_eq!(busy.ahead, Some(0));
        drop(busy);
        give_back(&*engine, &stake).await;
    }
    let (_last, busy) = wait_for(&*engine, &key, LONG).await;
    assert_eq!(busy.ahead, Some(0));
    give_back(&*engine, &holder).await;
    pushed(busy).await;
}

/// A queue has a bound; at it a claim is refused and changes nothing.
async fn r14_a_queue_has_a_bound(h) {
    let (engine, key) = (h.engine().await, key("bound"));
    let bound = engine.promises().longest_queue;
    let holder = take(&*engine, &key, LONG).await;
    let mut joins = tokio::task::JoinSet::new();
    let mut waiting = Vec::new();
    for _ in 0..bound {
        let (engine, key) = (engine.clone(), key.clone());
        joins.spawn(async move { wait_for(&*engine, &key, LONG).await });
        if joins.len() == 256 {
            waiting.extend(joins.join_next().await.expect("some").ok());
        }
    }
    waiting.extend(joins.join_all().await);
    assert_eq!(waiting.len(), bound);
    let one_more = claim(&key, LONG);
    let error = engine.claim(&one_more).await.expect_err("the queue is full");
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(!error.may_have_taken_effect(), "{error}");
    assert_eq!(engine.release(&one_more.stake()).await.expect("an answer"), Released::WasLost);
    busy_of(engine.claim(&attempt(&key, LONG)).await);
    held_by(h, &holder).await;
}

}
