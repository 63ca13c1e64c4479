//! Waiting for a lock, or not.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_testkit::proxy::{Direction, Opaque, Proxy};
use tenure_testkit::raw::Value;

use crate::support::{Bench, until, until_written};

#[test]
fn a_held_lock_is_75_without_waiting_and_after_the_wait() {
    let bench = Bench::new();
    let mut holder = bench.run(&["k", "--", "sleep", "30"]);
    bench.until_held("k", true);

    let begun = Instant::now();
    for words in [&["--no-wait"][..], &["--wait", "0"], &["--wait=0s"]] {
        let end = bench.run(&[words, &["k", "--", "touch", "ran"]].concat()).end();
        assert_eq!(end.code(), 75, "{}", end.err);
        assert!(end.err.contains("\"k\""), "{}", end.err);
    }
    assert!(begun.elapsed() < Duration::from_secs(5));

    let begun = Instant::now();
    let end = bench.run(&["--wait", "400ms", "k", "--", "touch", "ran"]).end();
    assert_eq!(end.code(), 75, "{}", end.err);
    assert!(begun.elapsed() >= Duration::from_millis(400));
    assert!(end.err.contains("not granted within 400ms"), "{}", end.err);
    assert!(!bench.file("ran").exists());
    assert!(holder.is_running());
}

#[test]
fn a_lock_that_becomes_free_in_time_is_acquired() {
    let bench = Bench::new();
    let holder = bench.run(&["k", "--", "sleep", "0.5"]);
    bench.until_held("k", true);
    let begun = Instant::now();
    let waiter = bench.run(&["--wait", "15s", "k", "--", "echo", "ran"]);
    assert_eq!(holder.end().code(), 0);
    let end = waiter.end();
    assert_eq!((end.code(), end.out.as_str()), (0, "ran\n"), "{}", end.err);
    assert!(begun.elapsed() < Duration::from_secs(5), "handed over, not after the term");
}

#[test]
fn other_keys_do_not_wait() {
    let bench = Bench::new();
    let _holder = bench.run(&["k", "--", "sleep", "30"]);
    bench.until_held("k", true);
    assert_eq!(bench.run(&["--no-wait", "k/1", "--", "true"]).end().code(), 0);
    assert_eq!(bench.run(&["--no-wait", "K", "--", "true"]).end().code(), 0);
}

/// Five commands read a number, wait, and write it back plus one. Only one at a time keeps it right.
#[test]
fn five_at_once_run_one_after_another() {
    let bench = Bench::new();
    std::fs::write(bench.file("n"), "0\n").unwrap();
    let script = "n=$(cat n); sleep 0.05; echo $((n + 1)) > n; echo $TENURE_TOKEN >> tokens";
    let all: Vec<_> = (0..5).map(|_| bench.run(&["k", "--", "sh", "-c", script])).collect();
    for one in all {
        let end = one.end();
        assert_eq!(end.code(), 0, "{}", end.err);
    }
    assert_eq!(until_written(&bench.file("n")), "5");
    let tokens = until_written(&bench.file("tokens"));
    let tokens: Vec<u64> = tokens.lines().map(|token| token.parse().unwrap()).collect();
    assert_eq!(tokens.len(), 5);
    assert!(tokens.is_sorted_by(|a, b| a < b), "tokens grow in the order of the holds: {tokens:?}");
    assert_eq!(bench.ask(&["EXISTS", "k"]), Value::Int(0));
}

/// A grant that is handed over has a short term at first. The command starts when it has been
/// prolonged, not before.
#[test]
fn the_command_starts_when_a_grant_that_was_handed_over_has_its_full_term() {
    let bench = Bench::new();
    let holder = bench.run(&["k", "--", "sleep", "30"]);
    bench.until_held("k", true);
    let proxy = Proxy::start(bench.server.address(), Opaque).unwrap();
    let url = format!("redis://{}", proxy.address());
    let waiter = bench.run_on(&url, &["k", "--", "sh", "-c", "echo > started; sleep 0.3"]);
    until("it waits", || bench.traces().len() > 1);

    proxy.hold(Direction::Request, true);
    let left = || bench.ask(&["PTTL", "k"]).int().unwrap();
    holder.signal(Signal::TERM);
    assert_eq!(holder.end().code(), 143);
    assert!((1..=3000).contains(&left()), "handed over with a short term: {}", left());
    std::thread::sleep(Duration::from_millis(300));
    assert!(!bench.file("started").exists(), "it did not wait for the full term");

    proxy.hold(Direction::Request, false);
    until_written(&bench.file("started"));
    assert!(left() > 15_000, "{}", left());
    assert_eq!(waiter.end().code(), 0);
    assert_eq!(bench.traces(), [""; 0]);
}

/// The same where the short term is as long as the whole one: it runs since before the hand-over.
#[test]
fn the_command_starts_when_a_short_grant_that_was_handed_over_has_been_prolonged() {
    let bench = Bench::new();
    let holder = bench.run(&["--ttl", "3s", "k", "--", "sleep", "30"]);
    bench.until_held("k", true);
    let proxy = Proxy::start(bench.server.address(), Opaque).unwrap();
    let url = format!("redis://{}", proxy.address());
    let waiter = bench.run_on(&url, &["--ttl", "3s", "k", "--", "sh", "-c", "echo > started; sleep 0.3"]);
    until("it waits", || bench.traces().len() > 1);

    // From here on its place is not refreshed, so that what it can prove of the grant is a while old.
    proxy.hold(Direction::Request, true);
    std::thread::sleep(Duration::from_millis(700));
    holder.signal(Signal::TERM);
    assert_eq!(holder.end().code(), 143);
    std::thread::sleep(Duration::from_millis(200));
    assert!(!bench.file("started").exists(), "it did not wait for the full term");

    proxy.hold(Direction::Request, false);
    until_written(&bench.file("started"));
    let end = waiter.end();
    assert_eq!(end.code(), 0, "{}", end.err);
    assert_eq!(bench.traces(), [""; 0]);
}

/// Short terms and a queue: each command runs once, one after another, and none is lost.
#[test]
fn a_queue_with_short_terms_is_served_in_full() {
    let bench = Bench::new();
    let script = "echo in >> log; sleep 0.2; echo out >> log";
    let all: Vec<_> = (0..5).map(|_| bench.run(&["--ttl", "3s", "k", "--", "sh", "-c", script])).collect();
    for one in all {
        let end = one.end();
        assert_eq!(end.code(), 0, "{}", end.err);
    }
    assert_eq!(until_written(&bench.file("log")), ["in\nout"; 5].join("\n"));
}

/// It cannot be prolonged: the command never starts.
#[test]
fn a_grant_that_is_lost_before_its_full_term_starts_no_command() {
    let bench = Bench::new();
    let holder = bench.run(&["k", "--", "sleep", "30"]);
    bench.until_held("k", true);
    let proxy = Proxy::start(bench.server.address(), Opaque).unwrap();
    let url = format!("redis://{}", proxy.address());
    let waiter = bench.run_on(&url, &["--ttl", "10s", "k", "--", "touch", "started"]);
    until("it waits", || bench.traces().len() > 1);

    proxy.hold(Direction::Request, true);
    holder.signal(Signal::TERM);
    assert_eq!(holder.end().code(), 143);
    let end = waiter.end();
    assert_eq!(end.code(), 76, "{}", end.err);
    assert!(end.err.contains("the command was not run"), "{}", end.err);
    assert!(!bench.file("started").exists());
}
