//! A server whose clock steps: what the promises say about it, and no worse.

use std::time::Duration;

use tenure::{Lease, LossCause, Moment};
use tenure_testkit::server::{RedisOptions, RedisServer};

const TERM: Duration = Duration::from_secs(3);

/// A server with a clock of its own. None where it cannot be had, unless everything is required.
fn server() -> Option<RedisServer> {
    if let Some(reason) = RedisServer::clock_missing() {
        let required = std::env::var_os("TENURE_REQUIRE_ALL").is_some_and(|value| value != "0");
        assert!(!required, "{reason}");
        eprintln!("not run: {reason}");
        return None;
    }
    let options = RedisOptions { own_clock: true, ..RedisOptions::default() };
    Some(RedisServer::start(options).unwrap())
}

fn seconds(server: &RedisServer) -> i64 {
    let time = server.raw(0).unwrap().demand(&["TIME"]).unwrap().texts();
    time[0].parse().unwrap()
}

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(5), work).await.expect("in time")
}

async fn told(lease: &Lease) {
    assert_eq!(in_time(lease.lost()).await, LossCause::Taken);
    assert!(Moment::now() < lease.valid_until(), "told after validity ended");
    assert!(!lease.is_held());
}

/// R1, R6: the hold ends at the server before its validity, as `Promises::exclusion` warns. The holder
/// is told at its next renewal, and whoever comes meanwhile has a larger token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r1_r6_a_clock_that_steps_forward_under_a_holder() {
    let Some(server) = server() else { return };
    let url = format!("redis://{}", server.address());
    let (one, two) = (tenure::connect(&url).await.unwrap(), tenure::connect(&url).await.unwrap());
    assert!(one.promises().exclusion.contains("steps forward"));
    let first = one.mutex("clock").ttl(TERM).acquire().await.unwrap();
    let alone = one.mutex("clock/alone").ttl(TERM).acquire().await.unwrap();
    let before = seconds(&server);
    server.step_clock(3600).unwrap();
    assert!((3599..3700).contains(&(seconds(&server) - before)), "the clock did not step");
    // Another client finds it free, though the first one's lease is valid still.
    let second = in_time(two.mutex("clock").ttl(TERM).acquire()).await.unwrap();
    assert!(second.token() > first.token(), "{} after {}", second.token(), first.token());
    told(&first).await;
    told(&alone).await;
    // From here on all is as ever: it is renewed by the new clock, and excludes.
    tokio::time::sleep(TERM + Duration::from_millis(500)).await;
    assert!(second.is_held());
    assert!(one.mutex("clock").ttl(TERM).try_acquire().await.unwrap().is_none());
    let last = second.token();
    second.release().await.unwrap();

    // And back again: the counter is there, so numbers grow, also for a client that connects now.
    server.step_clock(-3600).unwrap();
    let three = tenure::connect(&url).await.unwrap();
    let mut last = last;
    for tenure in [&one, &three, &two] {
        let lease = in_time(tenure.mutex("clock").ttl(TERM).acquire()).await.unwrap();
        assert!(lease.token() > last, "{} after {last}", lease.token());
        last = lease.token();
        lease.release().await.unwrap();
    }
}

/// A waiter whose place the step has ended claims anew, and nobody is left waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r7_a_clock_that_steps_forward_under_those_who_wait() {
    let Some(server) = server() else { return };
    let url = format!("redis://{}", server.address());
    let holder = tenure::connect(&url).await.unwrap();
    let lease = holder.mutex("clock").ttl(TERM).acquire().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let tenure = tenure::connect(&url).await.unwrap();
        waiting.push(tokio::spawn(async move {
            let lease = tenure.mutex("clock").ttl(TERM).acquire().await.unwrap();
            let token = lease.token();
            lease.release().await.unwrap();
            token
        }));
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.step_clock(3600).unwrap();
    let mut tokens = vec![lease.token()];
    for task in waiting {
        tokens.push(in_time(task).await.unwrap());
    }
    told(&lease).await;
    let first = tokens[0];
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!((tokens.len(), tokens[0]), (5, first), "a token twice, or below an earlier one");
}
