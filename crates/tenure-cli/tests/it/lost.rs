//! A lock that is lost while the command runs.

use std::time::{Duration, Instant};

use tenure_testkit::raw::Value;

use crate::support::{Bench, runs, until_written};

const WRITE_PID: &str = "echo $$ > pid; ";

#[test]
fn a_key_that_is_deleted_ends_the_command_with_76() {
    let bench = Bench::new();
    let run = bench.run(&["--ttl", "1s", "k", "--", "sh", "-c", &format!("{WRITE_PID} exec sleep 30")]);
    let pid = until_written(&bench.file("pid"));
    bench.ask(&["DEL", "k"]);
    let end = run.end();
    assert_eq!(end.code(), 76, "{}", end.err);
    assert!(end.err.contains("lost \"k\""), "{}", end.err);
    assert!(!runs(&pid));
    assert_eq!(bench.ask(&["EXISTS", "k"]), Value::Int(0), "renewal did not create it again");
}

#[test]
fn a_key_that_somebody_else_took_stays_theirs() {
    let bench = Bench::new();
    let run = bench.run(&["--ttl", "1s", "k", "--", "sh", "-c", &format!("{WRITE_PID} exec sleep 30")]);
    until_written(&bench.file("pid"));
    bench.ask(&["SET", "k", "somebody else", "PX", "30000"]);
    assert_eq!(run.end().code(), 76);
    assert_eq!(bench.ask(&["GET", "k"]).text().as_deref(), Some("somebody else"));
}

/// The server stands still past the term: the command, and all it started, has ended before the
/// validity of its lease has, though it takes no notice of TERM.
#[test]
fn a_server_that_stands_still_ends_the_command_before_the_term() {
    let bench = Bench::new();
    let script = format!(
        "trap '' TERM; {WRITE_PID} sh -c 'echo $$ > inner; for i in $(seq 3000); do sleep 0.01; done' & \
         for i in $(seq 3000); do sleep 0.01; done"
    );
    let run = bench.run(&["--ttl", "4s", "k", "--", "sh", "-c", &script]);
    let (outer, inner) = (until_written(&bench.file("pid")), until_written(&bench.file("inner")));
    bench.server.pause().unwrap();
    let paused = Instant::now();
    while runs(&outer) || runs(&inner) {
        assert!(paused.elapsed() < Duration::from_secs(4), "it outlived the term");
        std::thread::sleep(Duration::from_millis(1));
    }
    let end = run.end();
    assert_eq!(end.code(), 76, "{}", end.err);
    assert!(paused.elapsed() < Duration::from_secs(8), "saying goodbye to a dead server has a limit");
    bench.server.resume().unwrap();
}

#[test]
fn a_short_pause_of_the_server_costs_nothing() {
    let bench = Bench::new();
    let run = bench.run(&["--ttl", "3s", "k", "--", "sh", "-c", &format!("{WRITE_PID} sleep 2; exit 4")]);
    until_written(&bench.file("pid"));
    bench.server.pause().unwrap();
    std::thread::sleep(Duration::from_millis(1200));
    bench.server.resume().unwrap();
    let end = run.end();
    assert_eq!(end.code(), 4, "{}", end.err);
}

/// A command that tidies up when it is asked to end has the time for it.
#[test]
fn term_comes_first_and_what_the_command_started_may_tidy_up_too() {
    let bench = Bench::new();
    let script = "sh -c 'trap \"sleep 0.3; echo > tidied; exit\" TERM; echo > pid; for i in $(seq 3000); do sleep 0.01; done' & wait";
    let run = bench.run(&["--ttl", "3s", "k", "--", "sh", "-c", script]);
    until_written(&bench.file("pid"));
    bench.ask(&["DEL", "k"]);
    assert_eq!(run.end().code(), 76);
    assert!(bench.file("tidied").exists());
}

/// The lock went while the command ran, and nobody noticed before it ended.
#[test]
fn a_loss_that_shows_at_the_release_is_76_too() {
    let bench = Bench::new();
    let run = bench.run(&["--ttl", "30s", "k", "--", "sh", "-c", &format!("{WRITE_PID} sleep 0.5; exit 0")]);
    until_written(&bench.file("pid"));
    bench.ask(&["DEL", "k"]);
    let end = run.end();
    assert_eq!(end.code(), 76, "{}", end.err);
    assert!(end.err.contains("was lost while the command ran"), "{}", end.err);
}
