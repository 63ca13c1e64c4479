//! Waiters on broken lines and behind broken clients: they are served, and cost nobody much.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure::ErrorKind;

use super::faults::{RECOVERY, line, spoil_reply};
use super::leases::ends_before_the_hold;
use super::tools::*;
use crate::proxy::Verdict;

cases! { waiters:

/// A waiter on a half-open line gets the lock over another one.
async fn a_half_open_line_under_a_waiter(h) needs [Faults] {
    let (holder, key) = (h.tenure().await, key("half-waiter"));
    let waiter = h.faults().expect("needed").lone_client().await;
    let lease = holder.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
    let waiting = acquiring(waiter.tenure.mutex(&key).ttl(Duration::from_secs(3)));
    settle().await;
    waiter.line.half_open();
    lease.release().await.expect("released");
    let next = within(Duration::from_secs(15), "the lock", waiting).await.expect("no panic");
    assert_eq!(h.truth(&key).await, [next.owner().to_string()]);
    next.release().await.expect("released");
    nothing_is_left(h).await;
}

/// A reply that never comes to somebody who was queued: the place is left.
async fn r3_swallowed_reply_of_a_waiter_is_undone(h) needs [Faults, Words] {
    for verdict in [Verdict::Mute, Verdict::Cut] {
        let (holder, waiter, key) = (h.tenure().await, h.tenure().await, key("swallowed-place"));
        let lease = holder.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
        spoil_reply(h, &key, 0, verdict);
        let wait = Duration::from_secs(4);
        let error = waiter.mutex(&key).ttl(LONG).acquire_within(wait).await.expect_err("it is held");
        assert!([ErrorKind::TimedOut, ErrorKind::Unavailable].contains(&error.kind()), "{error}");
        line(h).clear_rule();
        eventually(RECOVERY, "the place without a reply", 0, || async {
            holder.engine().look(&key).await.expect("a view").waiters.len()
        })
        .await;
        lease.release().await.expect("released");
        nothing_is_left(h).await;
    }
}

/// A push that is lost on the way is found by the refresh of the place.
async fn r7_lost_push_is_found(h) needs [Faults, Words] {
    let (holder, waiter, key) = (h.tenure().await, h.tenure().await, key("lost-push"));
    let lost = Arc::new(AtomicU64::new(0));
    for term in [LONG, Duration::from_millis(900)] {
        let lease = holder.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
        let waiting = acquiring(waiter.mutex(&key).ttl(term));
        settle().await;
        let count = lost.clone();
        line(h).rule(move |message| {
            if message.is_push() {
                count.fetch_add(1, Ordering::SeqCst);
                return Verdict::Drop;
            }
            Verdict::Pass
        });
        let (begun, token) = (Instant::now(), lease.token());
        lease.release().await.expect("released");
        let next = within(RECOVERY, "the lock", waiting).await.expect("no panic");
        let refresh = tenure::refresh_interval(term);
        assert!(begun.elapsed() < refresh * 2 + Duration::from_millis(500), "{:?}", begun.elapsed());
        assert!(next.token() > token);
        ends_before_the_hold(h, &next).await;
        line(h).clear_rule();
        next.release().await.expect("released");
    }
    assert!(lost.load(Ordering::SeqCst) >= 2, "no push was lost");
    nothing_is_left(h).await;
}

/// A waiter that cannot be told while its lines are made anew gets the lock all the same.
async fn r7_waiter_skipped_while_its_subscriber_reconnects(h) needs [Faults] {
    let (holder, key) = (h.tenure().await, key("skipped"));
    let waiter = h.faults().expect("needed").lone_client().await;
    for away in [0, 100, 1500] {
        let lease = holder.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
        let waiting = acquiring(waiter.tenure.mutex(&key).ttl(LONG));
        settle().await;
        waiter.line.refuse(true);
        waiter.line.cut();
        settle().await;
        lease.release().await.expect("released");
        tokio::time::sleep(Duration::from_millis(away)).await;
        waiter.line.heal();
        let next = within(RECOVERY, "the lock", waiting).await.expect("no panic");
        assert_eq!(h.truth(&key).await, [next.owner().to_string()]);
        next.release().await.expect("released");
    }
    nothing_is_left(h).await;
}

/// A client that died at the head of the queue: if the store can tell that it is gone, it is passed
/// over at once; if not, it costs those behind it three refreshes at most.
async fn r7_dead_waiter_at_the_head(h) needs [Faults] {
    let (holder, alive, faults) = (h.tenure().await, h.tenure().await, h.faults().expect("needed"));
    for half_open in [false, true] {
        let (key, term) = (key("dead"), Duration::from_millis(900));
        let dead = faults.lone_client().await;
        let lease = holder.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
        let never = acquiring(dead.tenure.mutex(&key).ttl(if half_open { term } else { LONG }));
        settle().await;
        let waiting = acquiring(alive.mutex(&key).ttl(term));
        settle().await;
        dead.line.refuse(true);
        if half_open { dead.line.half_open() } else { dead.line.cut() }
        settle().await;
        let begun = Instant::now();
        lease.release().await.expect("released");
        let next = within(RECOVERY, "the lock", waiting).await.expect("no panic");
        let share = if half_open { tenure::refresh_interval(term) * 4 } else { Duration::ZERO };
        let limit = share + Duration::from_millis(400);
        assert!(begun.elapsed() < limit, "half-open: {half_open}: {:?}", begun.elapsed());
        never.abort();
        next.release().await.expect("released");
        dead.line.heal();
        dead.line.cut();
        eventually(RECOVERY, "left behind", Vec::<String>::new(), || h.leftovers()).await;
    }
}

/// A holder that died is followed by the one who waits as soon as its term is over.
async fn r7_dead_holder(h) needs [Faults] {
    let (faults, waiter, key) = (h.faults().expect("needed"), h.tenure().await, key("dead-holder"));
    let dead = faults.lone_client().await;
    let term = Duration::from_millis(900);
    let lease = dead.tenure.mutex(&key).ttl(term).acquire().await.expect("acquired");
    dead.line.refuse(true);
    dead.line.cut();
    let begun = Instant::now();
    let next = within(term + SOON, "the lock", waiter.mutex(&key).ttl(LONG).acquire()).await.expect("acquired");
    assert!(!lease.is_held(), "two leases are valid");
    assert!(begun.elapsed() < term + Duration::from_millis(300), "{:?}", begun.elapsed());
    assert!(next.token() > lease.token());
}

/// Many waiters whose lines are cut again and again all get the lock, one after another.
async fn everybody_is_served_over_a_bad_line(h) needs [Faults] {
    let (key, inside) = (key("bad-line"), Arc::new(AtomicBool::new(false)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let (lock, inside) = (h.tenure().await.mutex(&key).ttl(Duration::from_secs(3)), inside.clone());
        tasks.spawn(async move {
            let mut held = 0;
            while held < 5 {
                // A line that is cut twice within one request is an error that the user sees.
                let Ok(lease) = lock.acquire().await else { continue };
                let valid = lease.is_held();
                let alone = !inside.swap(true, Ordering::SeqCst);
                assert!(alone || !valid, "two are inside");
                tokio::time::sleep(Duration::from_millis(5)).await;
                inside.store(false, Ordering::SeqCst);
                drop(lease);
                held += 1;
            }
        });
    }
    let mut cuts = 0;
    while !tasks.is_empty() {
        tokio::select! {
            Some(result) = tasks.join_next() => result.expect("no panic"),
            () = tokio::time::sleep(Duration::from_millis(150)) => {
                if cuts < 30 {
                    line(h).cut();
                    cuts += 1;
                }
            }
        }
    }
    eventually(RECOVERY, "left behind", Vec::<String>::new(), || h.leftovers()).await;
}

}
