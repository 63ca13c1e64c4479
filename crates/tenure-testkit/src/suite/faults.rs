//! Broken lines and broken servers: what becomes of holds, of waiters, and of what is unclear.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tenure::{ErrorKind, Lease, Moment, Released};

use super::leases::ends_before_the_hold;
use super::tools::*;
use crate::harness::{Faults, Harness};
use crate::proxy::{Direction, Verdict};
use crate::server::Data;

/// What a client may take to notice that a line is dead, and to do it on another.
pub(super) const RECOVERY: Duration = Duration::from_secs(8);

cases! { faults:

/// A connection that is cut under a lease costs nothing.
async fn a_cut_line_does_not_cost_the_lease(h) needs [Faults] {
    let (tenure, key) = (h.tenure().await, key("cut"));
    let lease = tenure.mutex(&key).ttl(Duration::from_millis(900)).acquire().await.expect("acquired");
    for _ in 0..10 {
        line(h).cut();
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert!(lease.is_held());
        assert_eq!(h.truth(&key).await, [lease.owner().to_string()]);
    }
    assert_eq!(lease.release().await.expect("an answer"), Released::Released);
    nothing_is_left(h).await;
}

/// After a cut the next request works, without an error for the user.
async fn a_cut_line_is_made_anew(h) needs [Faults] {
    let (tenure, base) = (h.tenure().await, key("anew"));
    for number in 0..20 {
        line(h).cut();
        if number % 2 == 0 {
            settle().await;
        }
        let lock = tenure.mutex(format!("{base}/{number}")).ttl(LONG);
        let lease = within(RECOVERY, "the lock", lock.acquire()).await.expect("acquired");
        line(h).cut();
        if let Err(error) = lease.release().await {
            // Whether it got through before the cut cannot be known; it is done in any case.
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.may_have_taken_effect(), "{error}");
        }
    }
    nothing_is_left(h).await;
}

/// A server that is far away: a cut line is made anew, also where that takes many round trips, and
/// the lease is kept.
async fn a_cut_line_to_a_distant_server_does_not_cost_the_lease(h) needs [Faults] {
    let (tenure, key) = (h.tenure().await, key("distant"));
    let lease = tenure.mutex(&key).ttl(Duration::from_secs(6)).acquire().await.expect("acquired");
    line(h).delay(Direction::Request, Duration::from_millis(100));
    line(h).delay(Direction::Reply, Duration::from_millis(100));
    line(h).cut();
    tokio::time::sleep(Duration::from_secs(8)).await;
    assert!(lease.is_held());
    assert_eq!(h.truth(&key).await, [lease.owner().to_string()]);
    line(h).heal();
    let _ = lease.release().await;
    nothing_is_left(h).await;
}

/// A line that is half-open under a lease: a lease with a long term is kept over another line, the
/// loss of one with a short term is told in time.
async fn a_half_open_line_under_a_lease(h) needs [Faults] {
    let (tenure, key) = (h.tenure().await, key("half-open"));
    let lease = tenure.mutex(&key).ttl(Duration::from_secs(6)).acquire().await.expect("acquired");
    let short = tenure.mutex(format!("{key}/short")).ttl(Duration::from_millis(900));
    let short = short.acquire().await.expect("acquired");
    line(h).half_open();
    told_in_time(&short).await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(7) {
        ends_before_the_hold(h, &lease).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(lease.is_held(), "a new line could have been made in time");
    lease.release().await.expect("released");
    drop(short);
    nothing_is_left(h).await;
}

/// A server frozen for less than the term costs no lease.
async fn frozen_for_less_than_the_term(h) needs [Faults] {
    let (faults, tenure, key) = (h.faults().expect("needed"), h.tenure().await, key("short-freeze"));
    let lease = tenure.mutex(&key).ttl(Duration::from_secs(3)).acquire().await.expect("acquired");
    for _ in 0..3 {
        faults.pause().await;
        tokio::time::sleep(Duration::from_millis(1200)).await;
        faults.resume().await;
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert!(lease.is_held());
        ends_before_the_hold(h, &lease).await;
    }
    assert_eq!(lease.release().await.expect("an answer"), Released::Released);
    nothing_is_left(h).await;
}

/// A server frozen for longer than the term: the loss is told in time, and after the thaw nothing
/// brings the hold back.
async fn frozen_for_longer_than_the_term(h) needs [Faults] {
    let (faults, tenure, key) = (h.faults().expect("needed"), h.tenure().await, key("long-freeze"));
    let term = Duration::from_millis(900);
    let lease = tenure.mutex(&key).ttl(term).acquire().await.expect("acquired");
    faults.pause().await;
    told_in_time(&lease).await;
    tokio::time::sleep(term / 2).await;
    faults.resume().await;
    let next = within(RECOVERY, "the lock", tenure.mutex(&key).ttl(term).acquire()).await.expect("acquired");
    assert!(next.token() > lease.token());
    drop(lease);
    tokio::time::sleep(term).await;
    assert!(next.is_held());
    next.release().await.expect("released");
    nothing_is_left(h).await;
}

/// Acquiring from a frozen server ends with an error that says what is unclear, and nothing stays.
async fn r3_acquiring_from_a_frozen_server_leaves_nothing(h) needs [Faults] {
    let (faults, tenure, key) = (h.faults().expect("needed"), h.tenure().await, key("frozen"));
    faults.pause().await;
    let begun = Instant::now();
    let error = tenure.mutex(&key).ttl(LONG).acquire().await.expect_err("the server is frozen");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.may_have_taken_effect(), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    faults.resume().await;
    stays_empty(h).await;
}

/// A frozen server takes in no more than its line holds: whoever asks is told in time all the same.
async fn a_line_that_takes_no_more(h) needs [Faults] {
    let (faults, tenure, base) = (h.faults().expect("needed"), h.tenure().await, key("full-line"));
    faults.pause().await;
    // More than the buffers on the way hold, while one flight fits into that of a TLS session.
    let value = vec![b'x'; 1000];
    let asking: Vec<_> = (0..12_000)
        .map(|number| {
            let lock = tenure.mutex(format!("{base}/{number}")).ttl(LONG).value(&value);
            tokio::spawn(async move { lock.try_acquire().await })
        })
        .collect();
    for asked in asking {
        let answer = within(RECOVERY, "an answer", asked).await.expect("no panic");
        assert_eq!(answer.expect_err("the server is frozen").kind(), ErrorKind::Unavailable);
    }
    faults.resume().await;
    let lock = tenure.mutex(&base).ttl(LONG);
    let lease = within(RECOVERY, "the lock", lock.acquire()).await.expect("acquired");
    lease.release().await.expect("released");
    stays_empty(h).await;
}

/// A cancelled acquire leaves nothing, though its request is carried out later.
async fn r3_cancelled_acquire_leaves_nothing(h) needs [Faults] {
    let (faults, tenure, key) = (h.faults().expect("needed"), h.tenure().await, key("cancelled"));
    for wait in [0, 20, 100] {
        faults.pause().await;
        let task = acquiring(tenure.mutex(&key).ttl(LONG));
        tokio::time::sleep(Duration::from_millis(wait)).await;
        task.abort();
        tokio::time::sleep(Duration::from_millis(50)).await;
        faults.resume().await;
        stays_empty(h).await;
    }
}

/// A reply that never comes: the claim is undone.
async fn r3_swallowed_reply_is_undone(h) needs [Faults, Words] {
    for verdict in [Verdict::Mute, Verdict::Cut] {
        for nth in 0..3 {
            let (tenure, key) = (h.tenure().await, key("swallowed"));
            spoil_reply(h, &key, nth, verdict);
            let result = within(RECOVERY, "an answer", tenure.mutex(&key).ttl(LONG).acquire()).await;
            line(h).clear_rule();
            match result {
                Ok(lease) => {
                    assert_eq!(h.truth(&key).await, [lease.owner().to_string()]);
                    lease.release().await.expect("released");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                    assert!(error.may_have_taken_effect(), "{error}");
                }
            }
            eventually(RECOVERY, "the claim without a reply", Vec::<String>::new(), || h.leftovers()).await;
            tenure.close().await.expect("closed");
        }
    }
}

/// A release whose reply never comes has still released, and says so or that it is unclear.
async fn a_swallowed_reply_to_a_release(h) needs [Faults, Words] {
    for verdict in [Verdict::Mute, Verdict::Cut] {
        let (tenure, key) = (h.tenure().await, key("release"));
        let lease = tenure.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
        spoil_reply(h, &key, 0, verdict);
        let result = within(RECOVERY, "an answer", lease.release()).await;
        if let Err(error) = result {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.may_have_taken_effect(), "{error}");
        }
        line(h).clear_rule();
        eventually(RECOVERY, "the release", Vec::<String>::new(), || h.leftovers()).await;
        tenure.close().await.expect("closed");
    }
}

/// A release that cannot be sent is tried again in the background.
async fn a_release_is_tried_again(h) needs [Faults] {
    let (tenure, key) = (h.tenure().await, key("later"));
    let lease = tenure.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
    line(h).refuse(true);
    line(h).cut();
    if let Ok(released) = within(RECOVERY, "an answer", lease.release()).await {
        panic!("nobody can have answered {released:?}");
    }
    line(h).heal();
    eventually(RECOVERY, "the release", Vec::<String>::new(), || h.leftovers()).await;
}

/// A renewal that arrives after the release brings nothing back and tells no loss.
async fn r2_a_delayed_renewal_does_not_undo_a_release(h) needs [Faults, Words] {
    for _ in 0..3 {
        let (tenure, key) = (h.tenure().await, key("delayed"));
        let lease = tenure.mutex(&key).ttl(Duration::from_millis(900)).acquire().await.expect("acquired");
        let seen = Arc::new(AtomicBool::new(false));
        let (name, for_rule) = (key.clone(), seen.clone());
        line(h).rule(move |message| {
            let renewal = message.direction == Direction::Request && message.holds(name.as_str());
            if renewal && !for_rule.swap(true, Ordering::SeqCst) {
                return Verdict::Delay(Duration::from_millis(300));
            }
            Verdict::Pass
        });
        eventually(SOON, "a renewal", true, || async { seen.load(Ordering::SeqCst) }).await;
        assert_eq!(lease.release().await.expect("an answer"), Released::Released);
        is_free(h, &key).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
        is_free(h, &key).await;
        nothing_is_left(h).await;
        line(h).heal();
    }
}

/// A grant whose reply is late is used only for what is left of it, or given back.
async fn r1_a_late_grant_is_not_used_beyond_its_term(h) needs [Faults] {
    let (tenure, key) = (h.tenure().await, key("late-grant"));
    for (term, late) in [(1000, 400), (300, 500)] {
        line(h).hold(Direction::Reply, true);
        let lock = tenure.mutex(&key).ttl(Duration::from_millis(term)).renewal(false);
        let task = tokio::spawn(async move { lock.acquire().await });
        tokio::time::sleep(Duration::from_millis(late)).await;
        line(h).hold(Direction::Reply, false);
        match task.await.expect("no panic") {
            Ok(lease) => {
                assert!(lease.is_held());
                ends_before_the_hold(h, &lease).await;
                lease.release().await.expect("released");
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
        nothing_is_left(h).await;
    }
}

/// A server that restarts empty: the holder is told, tokens go on growing.
async fn r6_tokens_grow_across_restart_empty(h) needs [Faults] {
    restarted(h, "empty", |faults| Box::pin(faults.restart(Data::Dropped))).await;
}

/// A server that restarts with its data: tokens go on growing.
async fn r6_tokens_grow_across_restart_with_data(h) needs [Faults] {
    restarted(h, "data", |faults| Box::pin(faults.restart(Data::Kept))).await;
}

/// A short restart with data does not cost a lease with a long term.
async fn a_restart_with_data_keeps_leases_and_places(h) needs [Faults] {
    let (faults, key) = (h.faults().expect("needed"), key("restart"));
    let (holder, waiter) = (h.tenure().await, h.tenure().await);
    let lease = holder.mutex(&key).ttl(Duration::from_secs(6)).acquire().await.expect("acquired");
    let waiting = acquiring(waiter.mutex(&key).ttl(Duration::from_secs(6)));
    settle().await;
    faults.restart(Data::Kept).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(lease.is_held());
    assert_eq!(h.truth(&key).await, [lease.owner().to_string()]);
    assert!(!waiting.is_finished());
    assert_eq!(lease.release().await.expect("an answer"), Released::Released);
    within(RECOVERY, "the lock", waiting).await.expect("no panic").release().await.expect("released");
    nothing_is_left(h).await;
}

/// A server that is down: an error soon, and work goes on when it is back.
async fn a_server_that_is_down_is_told_soon(h) needs [Faults] {
    let (tenure, key) = (h.tenure().await, key("down"));
    line(h).refuse(true);
    line(h).cut();
    let lock = tenure.mutex(&key).ttl(LONG);
    for _ in 0..2 {
        let begun = Instant::now();
        let error = lock.acquire().await.expect_err("it is down");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    }
    line(h).heal();
    eventually(RECOVERY, "the lock", true, || async { lock.try_acquire().await.is_ok_and(|lease| lease.is_some()) }).await;
    nothing_is_left(h).await;
}

}

pub(super) fn line(h: &dyn Harness) -> &crate::proxy::Proxy {
    h.faults().expect("the case needs faults").line()
}

/// Spoils the nth reply to a request about this key, from now on counted from 0; others pass.
pub(super) fn spoil_reply(h: &dyn Harness, key: &tenure::Key, nth: u64, verdict: Verdict) {
    let (name, mut seen) = (key.as_str().to_owned(), 0);
    line(h).rule(move |message| {
        if message.answers(&name) {
            seen += 1;
            if seen == nth + 1 {
                return verdict;
            }
        }
        Verdict::Pass
    });
}

/// The loss is told while the lease can still be proved.
async fn told_in_time(lease: &Lease) {
    let limit = lease.remaining() + Duration::from_secs(10);
    within(limit, "the loss", lease.lost()).await;
    assert!(Moment::now() <= lease.valid_until(), "the loss was told after validity ended");
    assert!(!lease.is_held());
}

/// Nothing is there, now and after everything that may be under way has arrived.
async fn stays_empty(h: &dyn Harness) {
    eventually(RECOVERY, "left behind", Vec::<String>::new(), || h.leftovers()).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(h.leftovers().await, [""; 0]);
}

type Work<'a> = std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// A lease, a restart, another lease: told or kept, and with a larger token each time.
async fn restarted(h: &dyn Harness, name: &str, restart: impl for<'a> Fn(&'a dyn Faults) -> Work<'a>) {
    let (faults, tenure, other, key) =
        (h.faults().expect("needed"), h.tenure().await, h.tenure().await, key(name));
    let lock = tenure.mutex(&key).ttl(Duration::from_millis(900));
    let mut last = None;
    for round in 0..4 {
        let lease = within(RECOVERY, "the lock", lock.acquire()).await.expect("acquired");
        assert!(Some(lease.token()) > last, "{} after {last:?}", lease.token());
        last = Some(lease.token());
        restart(faults).await;
        if h.truth(&key).await.is_empty() {
            within(SOON, "the loss", lease.lost()).await;
            assert!(Moment::now() <= lease.valid_until(), "told too late");
        }
        drop(lease);
        // Another client, which has connected before the restart, or after it.
        let next = if round % 2 == 0 { h.tenure().await } else { other.clone() };
        let lock = next.mutex(&key).ttl(Duration::from_millis(900));
        let lease = within(RECOVERY, "the lock", lock.acquire()).await.expect("acquired");
        assert!(Some(lease.token()) > last, "{} after {last:?}", lease.token());
        last = Some(lease.token());
        lease.release().await.expect("released");
    }
    eventually(RECOVERY, "left behind", Vec::<String>::new(), || h.leftovers()).await;
}
