//! Signals: passed on to the child, and an end of waiting.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_testkit::raw::Value;

use crate::support::{Bench, Running, until, until_written};

#[test]
fn each_signal_is_passed_on_and_the_lock_released_after_the_childs_end() {
    let bench = Bench::new();
    for (signal, name, code) in [
        (Signal::INT, "INT", 130),
        (Signal::TERM, "TERM", 143),
        (Signal::HUP, "HUP", 129),
        (Signal::QUIT, "QUIT", 131),
    ] {
        let run = bench.run(&["k", "--", "sh", "-c", "ulimit -c 0; echo > started; exec sleep 30"]);
        until_written(&bench.file("started"));
        std::fs::remove_file(bench.file("started")).unwrap();
        run.signal(signal);
        let end = run.end();
        assert_eq!(end.code(), code, "{name}: {}", end.err);
        assert_eq!(bench.traces(), [""; 0], "{name}");
    }
}

#[test]
fn the_lock_is_held_until_a_child_that_takes_its_time_has_ended() {
    let bench = Bench::new();
    let script = "trap 'echo > told; sleep 0.5; echo > done; exit 5' TERM; echo > started; for i in $(seq 3000); do sleep 0.01; done";
    let run = bench.run(&["k", "--", "sh", "-c", script]);
    until_written(&bench.file("started"));
    run.signal(Signal::TERM);
    until_written(&bench.file("told"));
    assert_eq!(bench.ask(&["EXISTS", "k"]), Value::Int(1), "still held");
    assert_eq!(run.end().code(), 5);
    assert!(bench.file("done").exists());
    assert_eq!(bench.traces(), [""; 0]);
}

#[test]
fn the_whole_group_gets_the_signal() {
    let bench = Bench::new();
    let script = "sh -c 'trap \"echo > grandchild; exit\" TERM; echo > started; for i in $(seq 3000); do sleep 0.01; done' & wait $!; wait";
    let run = bench.run(&["k", "--", "sh", "-c", script]);
    until_written(&bench.file("started"));
    run.signal(Signal::TERM);
    assert_eq!(run.end().code(), 143);
    until_written(&bench.file("grandchild"));
}

/// As one that reads from the terminal is.
#[test]
fn a_child_that_was_stopped_gets_the_signal_too() {
    let bench = Bench::new();
    let run = bench.run(&["k", "--", "sh", "-c", "echo $$ > started; kill -STOP $$; sleep 30"]);
    let pid = until_written(&bench.file("started"));
    let stat = format!("/proc/{pid}/stat");
    until("it is stopped", || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") T ")));
    run.signal(Signal::INT);
    assert_eq!(run.end().code(), 130);
    assert_eq!(bench.traces(), [""; 0]);
}

#[test]
fn an_interrupt_while_waiting_leaves_the_queue() {
    let bench = Bench::new();
    let mut holder = bench.run(&["k", "--", "sleep", "30"]);
    bench.until_held("k", true);
    let alone = bench.traces().len();
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let waiter = bench.run(&["k", "--", "touch", "ran"]);
        until("it waits", || bench.traces().len() > alone);
        waiter.signal(signal);
        let end = waiter.end();
        assert_eq!(end.code(), code, "{}", end.err);
        assert_eq!(bench.traces().len(), alone, "it left the queue: {:?}", bench.traces());
    }
    assert!(holder.is_running());
    holder.signal(Signal::TERM);
    assert_eq!(holder.end().code(), 143);
    assert_eq!(bench.traces(), [""; 0], "nothing is left");
    assert!(!bench.file("ran").exists());
}

#[test]
fn an_interrupt_while_connecting_ends_it_at_once() {
    let bench = Bench::new();
    bench.server.pause().unwrap();
    let waiter = bench.run(&["-v", "k", "--", "touch", "ran"]);
    std::thread::sleep(Duration::from_millis(200));
    let interrupted = Instant::now();
    waiter.signal(Signal::INT);
    assert_eq!(waiter.end().code(), 130);
    assert!(interrupted.elapsed() < Duration::from_secs(1), "{:?}", interrupted.elapsed());
    bench.server.resume().unwrap();
}

/// `nohup`, and shells that start a job in the background, rely on it.
#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let bench = Bench::new();
    // CHLD too: where it is ignored, the end of a child would be thrown away.
    let mut command = std::process::Command::new("env");
    command.args([
        "--ignore-signal=HUP,INT,CHLD",
        env!("CARGO_BIN_EXE_tenure"),
        "run",
        "--engine",
        &bench.url(),
    ]);
    command.args(["k", "--", "sh", "-c", "echo > started; sleep 0.7; exit 3"]).current_dir(bench.file("."));
    let run = Running::start(command);
    until_written(&bench.file("started"));
    run.signal(Signal::HUP);
    run.signal(Signal::INT);
    let end = run.end();
    assert_eq!(end.code(), 3, "{}", end.err);
}
