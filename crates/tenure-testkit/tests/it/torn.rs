//! One key, many clients, and lines, scripts and a server that fail all the time.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::Rng;
use tenure::Token;
use tenure_testkit::proxy::{Direction, Proxy, Resp};
use tenure_testkit::raw::Raw;
use tenure_testkit::server::{RedisOptions, RedisServer};

const CLIENTS: usize = 6;
/// Tasks of a client, where they take turns.
const TASKS: usize = 3;
const TERM: Duration = Duration::from_millis(300);
const TIME: Duration = Duration::from_secs(5);

/// What the lock protects: who is in, and the largest token so far.
#[derive(Default)]
struct Protected {
    inside: Option<Token>,
    largest: Option<Token>,
    entries: usize,
}

/// Enters again and again. `excludes`: whether nobody may enter beside a valid lease. A server that
/// forgets holds cannot promise that; then only what was granted before the acquire began is compared.
async fn work(tenure: tenure::Tenure, protected: Arc<Mutex<Protected>>, until: Instant, excludes: bool) {
    let lock = tenure.mutex("torn").ttl(TERM);
    while Instant::now() < until {
        let before = protected.lock().unwrap().largest;
        let lease = match excludes {
            true => lock.acquire_within(Duration::from_secs(3)).await,
            false => lock.acquire().await,
        };
        let Ok(lease) = lease else { continue };
        let token = lease.token();
        assert!(Some(token) > before, "{token} was granted after {before:?}");
        let entered = {
            let mut protected = protected.lock().unwrap();
            // As a resource with a fence does: who comes too late stays out.
            let entered = lease.is_held();
            if entered {
                let largest = protected.largest;
                assert!(!excludes || Some(token) > largest, "{token} entered after {largest:?}");
                assert_ne!(Some(token), largest, "granted twice");
                protected.largest = largest.max(Some(token));
                protected.inside = Some(token);
                protected.entries += 1;
            }
            entered
        };
        let pause = rand::rng().random_range(0..4);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        {
            let mut protected = protected.lock().unwrap();
            let inside = protected.inside;
            if entered && excludes && lease.is_held() {
                assert_eq!(inside, Some(token), "entered beside a valid lease");
            }
            if inside == Some(token) {
                protected.inside = None;
            }
        }
        match pause {
            0 => drop(lease),
            _ => drop(lease.release().await),
        }
    }
}

/// Spoils something every few milliseconds.
async fn spoil(server: &RedisServer, lines: &[Proxy], until: Instant, flush: bool) {
    let raw = || -> Raw { server.raw(0).unwrap() };
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(rand::rng().random_range(5..80))).await;
        let line = &lines[rand::rng().random_range(0..lines.len())];
        match rand::rng().random_range(0..10) {
            0..=4 => line.cut(),
            5 => line.delay(Direction::Reply, Duration::from_millis(rand::rng().random_range(1..60))),
            6 => line.heal(),
            7 => drop(raw().demand(&["SCRIPT", "FLUSH"]).unwrap()),
            8 if flush => drop(raw().demand(&["FLUSHALL"]).unwrap()),
            8 => line.half_open(),
            _ => {
                server.pause().unwrap();
                tokio::time::sleep(Duration::from_millis(rand::rng().random_range(20..400))).await;
                server.resume().unwrap();
            }
        }
    }
    lines.iter().for_each(Proxy::heal);
}

async fn run(flush: bool) {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    let protected = Arc::new(Mutex::new(Protected::default()));
    let until = Instant::now() + TIME;
    let (mut lines, mut tasks) = (Vec::new(), Vec::new());
    for _ in 0..CLIENTS {
        let line = Proxy::start(server.address(), Resp).unwrap();
        let tenure = tenure::connect(format!("redis://{}", line.address())).await.unwrap();
        lines.push(line);
        for _ in 0..if flush { 1 } else { TASKS } {
            tasks.push(tokio::spawn(work(tenure.clone(), protected.clone(), until, !flush)));
        }
    }
    spoil(&server, &lines, until, flush).await;
    for task in tasks {
        tokio::time::timeout(Duration::from_secs(10), task).await.expect("nobody hangs").unwrap();
    }
    let entries = protected.lock().unwrap().entries;
    eprintln!("{entries} entries");
    assert!(entries > 30, "only {entries} got in");
}

/// R1, R3, R6: nobody enters beside a lease that is valid, and tokens grow.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r1_nobody_enters_beside_a_valid_lease_whatever_breaks() {
    run(false).await;
}

/// R6: tokens grow even where the server forgets everything again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r6_tokens_grow_whatever_is_flushed() {
    run(true).await;
}
