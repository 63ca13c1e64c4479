//! Cancelling: an acquire that is dropped at any instant leaves nothing behind (R3).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use tenure::engine::Released;
use tenure::{Key, Tenure};

use super::tools::*;
use crate::harness::Harness;

/// The sweep covers the first instants of an acquire ...
const SWEPT: Duration = Duration::from_millis(5);
/// ... in steps of this size, on each of
const STEP: Duration = Duration::from_micros(10);
/// so many keys at once.
const LANES: u32 = 6;

cases! { cancel:

/// A claim that is dropped and then released leaves nothing: the release does not overtake it.
async fn r3_a_release_does_not_overtake_a_dropped_claim(h) {
    let (engine, key) = (h.engine().await, key("overtake"));
    for round in 0..300 {
        let claim = claim(&key, LONG);
        {
            let mut request = engine.claim(&claim);
            for _ in 0..round % 3 {
                if poll_once(request.as_mut()).await {
                    break;
                }
            }
            if round % 5 == 0 {
                tokio::time::sleep(Duration::from_micros(100)).await;
            }
        }
        engine.release(&claim.stake()).await.expect("an answer");
        if round % 20 == 0 {
            is_free(h, &key).await;
        }
    }
    stays_empty(h).await;
}

/// A release that is dropped is carried out.
async fn r3_a_dropped_release_is_carried_out(h) {
    let (engine, tenure, key) = (h.engine().await, h.tenure().await, key("dropped-release"));
    for _ in 0..50 {
        let stake = take(&*engine, &key, LONG).await;
        let mut request = engine.release(&stake);
        poll_once(request.as_mut()).await;
        drop(request);
        eventually(SOON, "the dropped release", Vec::<String>::new(), || h.truth(&key)).await;

        let lease = tenure.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
        let mut release = Box::pin(lease.release());
        poll_once(release.as_mut()).await;
        drop(release);
        eventually(SOON, "the dropped release", Vec::<String>::new(), || h.truth(&key)).await;
    }
    nothing_is_left(h).await;
}

/// Dropped at each step of its own: polled so many times, then dropped.
async fn r3_an_acquire_dropped_at_each_poll(h) {
    let (tenure, other, key) = (h.tenure().await, h.tenure().await, key("polls"));
    for contended in [false, true] {
        for polls in 0..12 {
            let held = match contended {
                true => Some(other.mutex(&key).ttl(LONG).acquire().await.expect("acquired")),
                false => None,
            };
            let lock = tenure.mutex(&key).ttl(LONG);
            let mut acquire = Box::pin(lock.acquire());
            for _ in 0..polls {
                if poll_once(acquire.as_mut()).await {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            drop(acquire);
            if let Some(lease) = held {
                assert_eq!(lease.release().await.expect("an answer"), Released::Released);
            }
            eventually(SOON, "the dropped acquire", Vec::<String>::new(), || h.truth(&key)).await;
        }
    }
    stays_empty(h).await;
}

/// The sweep over a free key: dropped at each instant from 0 to 5 ms, thousands of times.
async fn r3_cancellation_sweep_free(h) {
    let tenure = h.tenure().await;
    let sweep = Sweep::default();
    sweep.run(&tenure, |_| None).await;
    sweep.assert_it_was_one();
    stays_empty(h).await;
    tenure.close().await.expect("closed");
    stays_empty(h).await;
}

/// The sweep over keys that another client takes and gives back all the time, so that drops fall into
/// claims, into waits, and into hand-overs.
async fn r3_cancellation_sweep_contended(h) {
    let (tenure, other) = (h.tenure().await, h.tenure().await);
    let stop = Arc::new(AtomicBool::new(false));
    let sweep = Sweep::default();
    sweep.run(&tenure, |key| Some(taking_and_giving(other.clone(), key, stop.clone()))).await;
    stop.store(true, Ordering::SeqCst);
    sweep.assert_it_was_one();
    eventually(SOON, "the other client", Vec::<String>::new(), || h.leftovers()).await;
    stays_empty(h).await;
    tenure.close().await.expect("closed");
    other.close().await.expect("closed");
    stays_empty(h).await;
}

/// Waits that time out by the thousand, just when the lock is given back or not.
async fn waits_that_time_out_leave_nothing(h) {
    let (tenure, other, key) = (h.tenure().await, h.tenure().await, key("timeouts"));
    let stop = Arc::new(AtomicBool::new(false));
    let taker = taking_and_giving(other, key.clone(), stop.clone());
    let mut waits = tokio::task::JoinSet::new();
    for number in 0..400u64 {
        let lock = tenure.mutex(&key).ttl(LONG);
        waits.spawn(async move {
            match lock.acquire_within(Duration::from_millis(1 + number % 20)).await {
                Ok(lease) => drop(lease),
                Err(error) => assert!(error.is_timed_out(), "{error}"),
            }
        });
        if number % 16 == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    waits.join_all().await;
    stop.store(true, Ordering::SeqCst);
    taker.await.expect("no panic");
    stays_empty(h).await;
}

}

/// What a sweep came to.
#[derive(Default)]
struct Sweep {
    cancelled: Arc<AtomicU64>,
    acquired: Arc<AtomicU64>,
}

impl Sweep {
    /// Acquires on several keys at once and drops each acquire a step later than the one before.
    async fn run(&self, tenure: &Tenure, beside: impl Fn(Key) -> Option<tokio::task::JoinHandle<()>>) {
        let mut lanes = tokio::task::JoinSet::new();
        let mut others = Vec::new();
        for lane in 0..LANES {
            let key = key(&format!("lane-{lane}"));
            others.extend(beside(key.clone()));
            let lock = tenure.mutex(&key).ttl(LONG);
            let (cancelled, acquired) = (self.cancelled.clone(), self.acquired.clone());
            lanes.spawn_blocking(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                let mut instant = STEP / LANES * lane;
                while instant < SWEPT {
                    let lock = lock.clone();
                    // Another thread polls it, so that it can be dropped at any instant of its own.
                    let task = std::thread::scope(|scope| {
                        let (drop_it, dropped) = tokio::sync::oneshot::channel::<()>();
                        let polling = scope.spawn(|| {
                            runtime.block_on(async {
                                tokio::select! {
                                    biased;
                                    _ = dropped => None,
                                    lease = lock.acquire() => Some(lease),
                                }
                            })
                        });
                        std::thread::sleep(instant);
                        drop(drop_it);
                        polling.join().expect("no panic")
                    });
                    match task {
                        None => cancelled.fetch_add(1, Ordering::Relaxed),
                        Some(lease) => {
                            drop(lease.expect("acquired"));
                            acquired.fetch_add(1, Ordering::Relaxed)
                        }
                    };
                    instant += STEP;
                }
            });
        }
        lanes.join_all().await;
    }

    /// It covered both sides of the instant of success, thousands of times.
    fn assert_it_was_one(&self) {
        let (cancelled, acquired) =
            (self.cancelled.load(Ordering::Relaxed), self.acquired.load(Ordering::Relaxed));
        assert!(cancelled + acquired >= 2500, "only {cancelled} + {acquired} acquires");
        assert!(cancelled > 0 && acquired > 0, "{cancelled} cancelled, {acquired} acquired");
    }
}

/// A client that takes the key and gives it back until it is told to stop.
fn taking_and_giving(tenure: Tenure, key: Key, stop: Arc<AtomicBool>) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let lock = tenure.mutex(&key).ttl(LONG);
        while !stop.load(Ordering::SeqCst) {
            let lease = lock.acquire().await.expect("acquired");
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(lease.release().await.expect("an answer"), Released::Released);
        }
    })
}

/// Polls a future once; true if it is ready.
async fn poll_once<F: Future + ?Sized>(mut future: std::pin::Pin<&mut F>) -> bool {
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_ready())).await
}

/// Nothing is there soon, and nothing comes later from what may still be under way.
async fn stays_empty(h: &dyn Harness) {
    nothing_is_left(h).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(h.leftovers().await, [""; 0]);
}
