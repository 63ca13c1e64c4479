//! The lease: how long it is valid, how its loss is told, how it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenure::{ErrorKind, Lease, LossCause, Moment, Released};

use super::tools::*;
use crate::harness::Harness;
use crate::proxy::Direction;

cases! { leases:

/// Validity ends before the store lets go: after acquiring, renewing and extending.
async fn r1_validity_ends_before_the_hold(h) {
    let (tenure, key) = (h.tenure().await, key("validity"));
    let lease = tenure.mutex(&key).ttl(Duration::from_millis(900)).acquire().await.expect("acquired");
    for round in 0..60 {
        ends_before_the_hold(h, &lease).await;
        if round == 40 {
            lease.extend(Duration::from_secs(3)).await.expect("extended");
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

/// Validity counts from before the request: a late answer makes it shorter, never later.
async fn r1_validity_counts_from_before_the_request(h) needs [Faults] {
    let (tenure, key) = (h.tenure().await, key("late"));
    let line = h.faults().expect("needed").line();
    for direction in [Direction::Reply, Direction::Request] {
        line.delay(direction, Duration::from_millis(150));
        let begun = Instant::now();
        let lease = tenure.mutex(&key).ttl(Duration::from_secs(2)).acquire().await.expect("acquired");
        assert!(begun.elapsed() >= Duration::from_millis(150), "nothing was delayed");
        for round in 0..30 {
            ends_before_the_hold(h, &lease).await;
            if round == 10 {
                lease.extend(Duration::from_secs(3)).await.expect("extended");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(lease.is_held());
        lease.release().await.expect("released");
        line.heal();
    }
}

/// Also of a grant that was pushed, whenever the push comes.
async fn r1_validity_of_a_pushed_grant(h) needs [Faults] {
    let faults = h.faults().expect("needed");
    let (holder, key) = (h.tenure().await, key("pushed"));
    let waiter = faults.lone_client().await;
    for late in [0, 100, 250] {
        let lease = holder.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
        let waiting = acquiring(waiter.tenure.mutex(&key).ttl(Duration::from_millis(900)));
        settle().await;
        waiter.line.delay(Direction::Reply, Duration::from_millis(late));
        lease.release().await.expect("released");
        let next = within(SOON, "the push", waiting).await.expect("no panic");
        for _ in 0..30 {
            ends_before_the_hold(h, &next).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        waiter.line.heal();
        next.release().await.expect("released");
    }
}

/// A lease is kept for as long as it is held, without a gap.
async fn r2_a_lease_outlives_its_term(h) {
    let (tenure, key) = (h.tenure().await, key("renewed"));
    let lease = tenure.mutex(&key).ttl(h.ttl()).acquire().await.expect("acquired");
    let begun = Instant::now();
    while begun.elapsed() < h.ttl() * 10 {
        assert!(lease.is_held(), "lost after {:?}", begun.elapsed());
        assert_eq!(h.truth(&key).await, [lease.owner().to_string()]);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(lease.release().await.expect("an answer"), Released::Released);
    nothing_is_left(h).await;
}

/// Without renewal the term is the longest hold, and the end is told before the store lets go.
async fn r1_without_renewal_the_end_is_told_in_time(h) {
    let (tenure, key) = (h.tenure().await, key("unrenewed"));
    let term = h.ttl() * 2;
    let lease = tenure.mutex(&key).ttl(term).renewal(false).acquire().await.expect("acquired");
    let valid_until = lease.valid_until();
    let cause = within(term + SOON, "the loss", lease.lost()).await;
    assert_eq!(cause, LossCause::Expired);
    assert!(Moment::now() <= valid_until, "the loss was told after validity ended");
    assert!(!lease.is_held());
    assert_eq!(lease.remaining(), Duration::ZERO);
    assert_eq!(lease.release().await.expect("an answer"), Released::WasLost);
}

/// A loss is told within a renewal, whoever took the key away; nothing is created again, and what
/// somebody else has there is left alone.
async fn r2_a_loss_is_told_within_a_renewal(h) {
    let tenure = h.tenure().await;
    let term = Duration::from_millis(900);
    for usurped in [false, true] {
        let key = key("taken");
        let lease = tenure.mutex(&key).ttl(term).acquire().await.expect("acquired");
        if usurped { h.usurp(&key, LONG).await } else { h.evict(&key).await }
        let truth = h.truth(&key).await;
        let begun = Instant::now();
        let cause = within(SOON, "the loss", lease.lost()).await;
        assert!(begun.elapsed() < term / 3 + Duration::from_millis(250), "told after {:?}", begun.elapsed());
        assert_eq!(cause, LossCause::Taken);
        assert!(!lease.is_held());
        assert_eq!(h.truth(&key).await, truth);
        let error = lease.extend(LONG).await.expect_err("it is lost");
        assert!(error.is_lost(), "{error}");
        assert_eq!(lease.release().await.expect("an answer"), Released::WasLost);
        assert_eq!(h.truth(&key).await, truth);
    }
}

/// After a loss the same client can have the key again, renewed as before.
async fn r2_a_key_that_was_lost_can_be_had_again(h) {
    let (tenure, key) = (h.tenure().await, key("again"));
    let lock = tenure.mutex(&key).ttl(h.ttl());
    let lost = lock.acquire().await.expect("acquired");
    h.evict(&key).await;
    within(SOON, "the loss", lost.lost()).await;
    let lease = within(SOON, "the lock", lock.acquire()).await.expect("acquired");
    assert!(lease.token() > lost.token());
    drop(lost);
    tokio::time::sleep(h.ttl() * 3).await;
    assert!(lease.is_held(), "dropping the lost one took the new one away, or it was not renewed");
    assert_eq!(h.truth(&key).await, [lease.owner().to_string()]);
}

/// Work under a lease ends with its result, or is dropped when the lease is lost.
async fn run_ends_with_the_lease(h) {
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let (tenure, key) = (h.tenure().await, key("run"));
    let lease = tenure.mutex(&key).ttl(h.ttl()).acquire().await.expect("acquired");
    assert_eq!(lease.run(async { 7 }).await.expect("it ended first"), 7);
    let dropped = Arc::new(AtomicBool::new(false));
    let guard = Dropped(dropped.clone());
    let work = lease.run(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    let (result, ()) = tokio::join!(within(SOON, "the end of the work", work), h.evict(&key));
    let error = result.expect_err("the lease was lost");
    assert!(error.is_lost(), "{error}");
    assert!(dropped.load(Ordering::SeqCst), "the work still runs");
    let error = lease.run(async { 8 }).await.expect_err("it is lost already");
    assert!(error.is_lost(), "{error}");
}

/// Extending gives a new term now; a shorter one shortens nothing.
async fn extend_gives_a_new_term(h) {
    let (tenure, key) = (h.tenure().await, key("extend"));
    let lease = tenure.mutex(&key).ttl(h.ttl()).renewal(false).acquire().await.expect("acquired");
    lease.extend(Duration::from_secs(20)).await.expect("extended");
    let remaining = h.remaining(&key).await.expect("held");
    assert!(remaining > Duration::from_secs(20) - SOON, "{remaining:?}");
    assert!(lease.remaining() > Duration::from_secs(19) - SOON, "{:?}", lease.remaining());
    ends_before_the_hold(h, &lease).await;
    lease.extend(h.ttl()).await.expect("extended");
    let remaining = h.remaining(&key).await.expect("held");
    assert!(remaining > Duration::from_secs(20) - SOON, "{remaining:?}");
    assert!(lease.is_held());
    ends_before_the_hold(h, &lease).await;
}

/// Extending a lease whose hold has gone says so.
async fn extend_tells_of_a_loss(h) {
    let (tenure, key) = (h.tenure().await, key("extend-lost"));
    let lease = tenure.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
    h.evict(&key).await;
    let error = lease.extend(LONG).await.expect_err("it has gone");
    assert!(error.is_lost(), "{error}");
    within(SOON, "the loss", lease.lost()).await;
    is_free(h, &key).await;
}

/// Dropping a lease gives it back.
async fn r15_drop_releases(h) {
    let (tenure, key) = (h.tenure().await, key("drop"));
    let lease = tenure.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
    drop(lease);
    eventually(SOON, "the dropped lease", Vec::<String>::new(), || h.truth(&key)).await;
    nothing_is_left(h).await;
}

/// Dropping everything waits for the release, so that a program that ends leaves nothing.
async fn r15_dropping_the_last_handle_waits_for_the_release(h) {
    let (tenure, key) = (h.tenure().await, key("last"));
    let lock = tenure.mutex(&key).ttl(LONG);
    let lease = lock.acquire().await.expect("acquired");
    drop(tenure);
    drop(lock);
    assert!(lease.is_held(), "a lease is a handle too");
    drop(lease);
    is_free(h, &key).await;
    nothing_is_left(h).await;
}

/// Closing gives everything back, tells the holders, and refuses what comes later.
async fn closing_gives_everything_back(h) {
    let (tenure, other, key) = (h.tenure().await, h.tenure().await, key("close"));
    let lock = tenure.mutex(&key).ttl(LONG);
    let lease = lock.acquire().await.expect("acquired");
    let foreign = other.mutex(format!("{key}/other")).ttl(LONG).acquire().await.expect("acquired");
    let waits = tenure.mutex(foreign.key()).ttl(LONG);
    let waiting = tokio::spawn(async move { waits.acquire().await });
    settle().await;
    within(SOON, "the end", tenure.close()).await.expect("closed");
    assert_eq!(within(SOON, "the loss", lease.lost()).await, LossCause::Closed);
    assert!(!lease.is_held());
    is_free(h, &key).await;
    let error = within(SOON, "the answer", waiting).await.expect("no panic").expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    let error = lock.acquire().await.expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    foreign.release().await.expect("released");
    nothing_is_left(h).await;
}

/// Two hundred leases stay renewed while others come and go.
async fn r2_leases_are_renewed_while_others_come_and_go(h) {
    let (tenure, base) = (h.tenure().await, key("crowd"));
    let term = Duration::from_millis(1200);
    let mut leases = Vec::new();
    for number in 0..200 {
        let lock = tenure.mutex(format!("{base}/{number}")).ttl(term);
        leases.push(lock.acquire().await.expect("acquired"));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut others = tokio::task::JoinSet::new();
    for number in 0..4 {
        let lock = tenure.mutex(format!("{base}/other-{number}")).ttl(term);
        let stop = stop.clone();
        others.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                lock.acquire().await.expect("acquired").release().await.expect("released");
            }
        });
    }
    let begun = Instant::now();
    while begun.elapsed() < term * 2 {
        for lease in leases.iter().step_by(10) {
            assert!(lease.is_held());
            let remaining = h.remaining(lease.key()).await.expect("it is held");
            assert!(remaining >= term / 3, "only {remaining:?} were left of {term:?}");
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    stop.store(true, Ordering::SeqCst);
    others.join_all().await;
    for lease in leases {
        assert_eq!(lease.release().await.expect("an answer"), Released::Released);
    }
    nothing_is_left(h).await;
}

/// What was given back is renewed no more: a client that holds nothing is silent.
async fn r2_nothing_is_sent_for_what_was_given_back(h) needs [Faults] {
    let (tenure, base) = (h.tenure().await, key("silence"));
    let line = h.faults().expect("needed").line();
    for number in 0..50 {
        let lease = tenure.mutex(format!("{base}/{number}")).ttl(h.ttl()).acquire().await.expect("acquired");
        if number % 2 == 0 {
            lease.release().await.expect("released");
        } else {
            h.evict(lease.key()).await;
            within(SOON, "the loss", lease.lost()).await;
        }
    }
    // What was lost is given back once more after the time limits of its requests (R3).
    tokio::time::sleep(Duration::from_secs(4)).await;
    settle().await;
    let before = line.requests();
    tokio::time::sleep(h.ttl() * 3).await;
    assert_eq!(line.requests() - before, 0);
}

/// Giving back while renewals run at full speed: never a loss, and nothing is brought back.
async fn r2_releases_race_with_renewals(h) {
    let (tenure, key) = (h.tenure().await, key("race"));
    let term = tenure.promises().shortest_term;
    let (lock, mut in_time) = (tenure.mutex(&key).ttl(term), 0);
    for round in 0..60 {
        let lease = lock.acquire().await.expect("acquired");
        let held_from = Moment::now();
        // A third of the term: just when a renewal is sent.
        tokio::time::sleep(term / 3 - Duration::from_millis(3) + Duration::from_micros(100) * round).await;
        let released = lease.release().await.expect("an answer");
        // On a machine that stood still in between, the lease may be lost by right.
        if Moment::now().since(held_from) < term * 2 / 3 {
            assert_eq!(released, Released::Released, "round {round}");
            in_time += 1;
        }
        is_free(h, &key).await;
    }
    assert!(in_time > 10, "this machine is too slow for a term of {term:?}: {in_time} rounds were in time");
    nothing_is_left(h).await;
}

}

/// The lease's validity is over before the store's hold is.
pub(super) async fn ends_before_the_hold(h: &dyn Harness, lease: &Lease) {
    let valid_until = lease.valid_until();
    let Some(remaining) = h.remaining(lease.key()).await else {
        assert!(Moment::now() > valid_until, "nothing is held, and the lease is valid");
        return;
    };
    // Asked before this moment, told in whole milliseconds.
    let held_until = Moment::now() + remaining + Duration::from_millis(1);
    assert!(valid_until <= held_until, "valid for {:?} longer than held", valid_until.since(held_until));
}
