//! Leases: renewal, loss, extension, dropping, closing.

use tenure::engine::{Engine, Mode, Stake};
use tenure::{ErrorKind, Key, Lease, LossCause, Moment, Released};

use crate::support::{another, client, holders, ms, settle};

fn stake_of(lease: &Lease) -> Stake {
    Stake { key: lease.key().clone(), owner: lease.owner(), mode: Mode::Exclusive, term: ms(300), raw: None }
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_for_as_long_as_it_is_held() {
    let (tenure, memory) = client();
    let other = another(&memory, 2);
    let lease = tenure.mutex("k").ttl(ms(300)).acquire().await.unwrap();
    for _ in 0..100 {
        tokio::time::sleep(ms(37)).await;
        assert!(lease.is_held());
        assert!(lease.remaining() > ms(150), "{:?}", lease.remaining());
    }
    assert!(other.mutex("k").try_acquire().await.unwrap().is_none());
    assert_eq!(lease.release().await.unwrap(), Released::Released);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_taken_away_is_told_within_a_renewal() {
    let (tenure, memory) = client();
    let lease = tenure.mutex("k").ttl(ms(300)).acquire().await.unwrap();
    memory.release(&stake_of(&lease)).await.unwrap();
    let began = tokio::time::Instant::now();
    assert_eq!(lease.lost().await, LossCause::Taken);
    assert!(began.elapsed() <= ms(101));
    assert!(!lease.is_held());
    assert!(lease.remaining().is_zero());
    assert_eq!(lease.run(async { 1 }).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(lease.extend(ms(300)).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(lease.release().await.unwrap(), Released::WasLost);
}

#[tokio::test(start_paused = true)]
async fn without_renewal_the_term_is_the_longest_hold_and_the_end_is_told_before() {
    let (tenure, _memory) = client();
    let lease = tenure.mutex("k").ttl(ms(1000)).renewal(false).acquire().await.unwrap();
    let began = tokio::time::Instant::now();
    assert_eq!(lease.lost().await, LossCause::Expired);
    assert!(began.elapsed() < ms(1000 - 22), "before its validity ends");
    assert!(began.elapsed() > ms(940));
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_does_not_hold_up_the_next_task_of_the_client() {
    let (tenure, _memory) = client();
    let lost = tenure.mutex("k").ttl(ms(300)).renewal(false).acquire().await.unwrap();
    let next = tenure.mutex("k").acquire_within(ms(400)).await.expect("claimed anew");
    assert!(!lost.is_held());
    assert!(next.token() > lost.token());
    // The late release of the old one does not touch the new one.
    assert_eq!(lost.release().await.unwrap(), Released::WasLost);
    settle().await;
    assert!(next.is_held());
    assert_eq!(next.release().await.unwrap(), Released::Released);
}

#[tokio::test(start_paused = true)]
async fn work_is_stopped_when_the_lease_is_lost() {
    let (tenure, memory) = client();
    let lease = tenure.mutex("k").ttl(ms(300)).acquire().await.unwrap();
    assert_eq!(lease.run(async { 7 }).await.unwrap(), 7);
    memory.release(&stake_of(&lease)).await.unwrap();
    let error = lease.run(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().starts_with("run \"k\" on memory: the lease was lost"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn extend_sets_a_new_term_also_for_renewals() {
    let (tenure, memory) = client();
    let lease = tenure.mutex("k").ttl(ms(300)).renewal(false).acquire().await.unwrap();
    lease.extend(ms(2000)).await.unwrap();
    assert!(lease.remaining() > ms(1900));
    assert_eq!(lease.extend(ms(1)).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(lease.remaining() > ms(1900), "a refused extension changes nothing");
    let renewed = tenure.mutex("r").ttl(ms(300)).acquire().await.unwrap();
    renewed.extend(ms(900)).await.unwrap();
    tokio::time::sleep(ms(3000)).await;
    assert!(renewed.remaining() > ms(550));
    assert_eq!(holders(&memory, "r").await, 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_lease_releases_it() {
    let (tenure, memory) = client();
    drop(tenure.mutex("k").acquire().await.unwrap());
    settle().await;
    assert_eq!(holders(&memory, "k").await, 0);
}

#[tokio::test(start_paused = true)]
async fn closing_tells_holders_and_waiters_and_gives_everything_back() {
    let (tenure, memory) = client();
    let lease = tenure.mutex("k").acquire().await.unwrap();
    let waiting = tokio::spawn({
        let lock = tenure.mutex("k");
        async move { lock.acquire().await.map(|_| ()) }
    });
    settle().await;
    tenure.clone().close().await.unwrap();
    assert_eq!(lease.lost().await, LossCause::Closed);
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(holders(&memory, "k").await, 0);
    assert_eq!(tenure.mutex("k").acquire().await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn thousands_of_leases_are_renewed_together() {
    let (tenure, memory) = client();
    let mut leases = Vec::new();
    for n in 0..3000 {
        leases.push(tenure.mutex(format!("k{n}")).ttl(ms(900)).acquire().await.unwrap());
    }
    tokio::time::sleep(ms(5000)).await;
    assert!(leases.iter().all(Lease::is_held));
    // One lease's loss does not touch the others.
    memory.release(&stake_of(&leases[5])).await.unwrap();
    assert_eq!(leases[5].lost().await, LossCause::Taken);
    tokio::time::sleep(ms(2000)).await;
    assert_eq!(leases.iter().filter(|lease| !lease.is_held()).count(), 1);
}

#[test]
fn dropping_the_last_handle_waits_for_the_release_even_without_a_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (tenure, memory) = runtime.block_on(async {
        let background = tenure::Background::threads().unwrap();
        let memory = tenure::engine::memory::Memory::new(&background);
        let other = memory.client(&background);
        (tenure::Tenure::with_background(std::sync::Arc::new(memory), background), other)
    });
    let lease = runtime.block_on(tenure.mutex("k").acquire()).unwrap();
    assert!(lease.valid_until() > Moment::now());
    drop(runtime);
    drop(tenure);
    drop(lease);
    let look = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let view = look.block_on(memory.look(&Key::new("k").unwrap())).unwrap();
    assert!(view.holders.is_empty());
}

#[test]
fn beside_the_caller_a_hold_ends_with_its_term_when_the_runtime_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (tenure, memory) = runtime.block_on(async {
        let background = tenure::Background::beside_the_caller().unwrap();
        let memory = tenure::engine::memory::Memory::new(&background);
        let other = memory.client(&background);
        (tenure::Tenure::with_background(std::sync::Arc::new(memory), background), other)
    });
    let lock = tenure.mutex("k").ttl(ms(300));
    let lease = runtime.block_on(lock.acquire()).unwrap();
    std::thread::sleep(ms(500));
    assert!(lease.is_held(), "renewed by the keeper's own thread while the runtime stood still");
    runtime.spawn(async move {
        let _lease = lease;
        std::future::pending::<()>().await;
    });
    drop(runtime);
    std::thread::sleep(ms(400));
    let look = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let view = look.block_on(memory.look(&Key::new("k").unwrap())).unwrap();
    assert!(view.holders.is_empty(), "no longer renewed: {view:?}");
}

/// A clock that a test sets on, as if the process had stood still.
#[derive(Debug, Default)]
struct Jumping(std::sync::atomic::AtomicU64);

impl tenure::Clock for Jumping {
    fn now(&self) -> tenure::Moment {
        tenure::Moment::from_nanos(self.0.load(std::sync::atomic::Ordering::Relaxed))
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_standstill_no_work_begins_under_a_lease_that_is_over() {
    let clock = std::sync::Arc::new(Jumping::default());
    let background = tenure::Background::on_this_runtime_with(1, clock.clone());
    let memory = tenure::engine::memory::Memory::new(&background);
    let tenure = tenure::Tenure::with_background(std::sync::Arc::new(memory), background);
    let lock = tenure.mutex("a").ttl(ms(900));
    let lease = lock.acquire().await.unwrap();
    let waiting = tokio::spawn(async move { lock.acquire_within(ms(3000)).await });
    settle().await;
    assert_eq!(lease.run(async { 1 }).await.unwrap(), 1);
    // The keeper stood still, too, and has not been here since.
    clock.0.fetch_add(1_000_000_000, std::sync::atomic::Ordering::Relaxed);
    assert!(!lease.is_held());
    let mut worked = false;
    let error = lease.run(async { worked = true }).await.unwrap_err();
    assert!(error.is_lost() && !worked, "{error}");
    assert_eq!(lease.lost().await, tenure::LossCause::Expired);
    // Told by the clock: the others who wait here need not wait for the one who lost it.
    let next = waiting.await.unwrap().expect("claimed anew");
    assert!(next.token() > lease.token());
}

#[tokio::test(start_paused = true)]
async fn what_the_last_handle_began_is_carried_out() {
    let (tenure, other) = client();
    let lease = tenure.mutex("a").ttl(ms(900)).acquire().await.unwrap();
    drop(tenure);
    drop(lease);
    settle().await;
    assert_eq!(holders(&other, "a").await, 0);
}

#[tokio::test]
async fn beside_the_caller_dropping_the_last_handle_does_not_block_what_it_waits_for() {
    let background = tenure::Background::beside_the_caller().unwrap();
    let memory = tenure::engine::memory::Memory::new(&background);
    let other = memory.client(&background);
    let tenure = tenure::Tenure::with_background(std::sync::Arc::new(memory), background);
    let lease = tenure.mutex("a").acquire().await.unwrap();
    drop(tenure);
    let began = std::time::Instant::now();
    drop(lease);
    assert!(began.elapsed() < ms(300), "blocked for {:?}", began.elapsed());
    tokio::time::sleep(ms(20)).await;
    assert_eq!(holders(&other, "a").await, 0);
}
