//! What many cases need.

use std::fmt::Debug;
use std::future::Future;
use std::time::{Duration, Instant};

use rand::Rng;
use tenure::engine::{Answer, Busy, Claim, Engine, Grant, Mode, Released, Stake, Woken};
use tenure::{Key, Owner};

use crate::harness::Harness;

/// A term that does not end during a case.
pub(super) const LONG: Duration = Duration::from_secs(30);

/// What should be quick may take this long on a busy machine.
pub(super) const SOON: Duration = Duration::from_secs(2);

/// A key that no other case uses.
pub(super) fn key(name: &str) -> Key {
    Key::new(format!("suite-{:016x}/{name}", rand::rng().random::<u64>())).expect("a good key")
}

/// A claim by a new owner, which joins the queue.
pub(super) fn claim(key: &Key, term: Duration) -> Claim {
    let owner = Owner::from_id(rand::rng().random());
    Claim { key: key.clone(), owner, mode: Mode::Exclusive, term, value: Vec::new(), join: true }
}

/// A claim by a new owner, which does not wait.
pub(super) fn attempt(key: &Key, term: Duration) -> Claim {
    Claim { join: false, ..claim(key, term) }
}

/// Claims and must get it.
#[track_caller]
pub(super) fn grant_of(answer: tenure::Result<Answer>) -> Grant {
    match answer {
        Ok(Answer::Granted(grant)) => grant,
        other => panic!("should have been granted: {other:?}"),
    }
}

/// Must be busy.
#[track_caller]
pub(super) fn busy_of(answer: tenure::Result<Answer>) -> Busy {
    match answer {
        Ok(Answer::Busy(busy)) => busy,
        other => panic!("should have been busy: {other:?}"),
    }
}

/// Claims a key that must be free.
pub(super) async fn take(engine: &dyn Engine, key: &Key, term: Duration) -> Stake {
    let claim = claim(key, term);
    let grant = grant_of(engine.claim(&claim).await);
    Stake { raw: Some(grant.raw), ..claim.stake() }
}

/// Joins the queue of a key that must be busy.
pub(super) async fn wait_for(engine: &dyn Engine, key: &Key, term: Duration) -> (Stake, Busy) {
    let claim = claim(key, term);
    (claim.stake(), busy_of(engine.claim(&claim).await))
}

/// Gives back what must still be there.
pub(super) async fn give_back(engine: &dyn Engine, stake: &Stake) {
    assert_eq!(engine.release(stake).await.expect("released"), Released::Released);
}

/// Waits until the key was handed over by a push.
pub(super) async fn pushed(busy: Busy) -> Grant {
    match within(SOON, "the hand-over", busy.wake).await {
        Woken::Granted(grant) => grant,
        Woken::Ask => panic!("a waiter was told to ask, not that it holds the key"),
    }
}

/// Waits for something that must come in time.
pub(super) async fn within<T>(limit: Duration, what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(limit, work).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {limit:?}"),
    }
}

/// Asks again and again until the answer is as it should be.
pub(super) async fn eventually<T, F>(limit: Duration, what: &str, wanted: T, mut ask: impl FnMut() -> F)
where
    T: PartialEq + Debug,
    F: Future<Output = T>,
{
    let begun = Instant::now();
    loop {
        let answer = ask().await;
        if answer == wanted {
            return;
        }
        assert!(begun.elapsed() < limit, "{what}: still {answer:?} after {limit:?}, not {wanted:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The key is held by this owner and nobody else.
pub(super) async fn held_by(harness: &dyn Harness, stake: &Stake) {
    assert_eq!(harness.truth(&stake.key).await, [stake.owner.to_string()]);
}

/// Nobody holds the key.
pub(super) async fn is_free(harness: &dyn Harness, key: &Key) {
    assert_eq!(harness.truth(key).await, [""; 0]);
}

/// The store is empty, or becomes so at once. Only for cases that used nothing longer than `LONG`:
/// whatever waits for a term is caught.
pub(super) async fn nothing_is_left(harness: &dyn Harness) {
    eventually(SOON, "left behind", Vec::<String>::new(), || harness.leftovers()).await;
}

/// A task that acquires and must succeed.
pub(super) fn acquiring(lock: tenure::Mutex) -> tokio::task::JoinHandle<tenure::Lease> {
    tokio::spawn(async move { lock.acquire().await.expect("acquired") })
}

/// Long enough for a request that was begun to have arrived.
pub(super) async fn settle() {
    tokio::time::sleep(Duration::from_millis(60)).await;
}
