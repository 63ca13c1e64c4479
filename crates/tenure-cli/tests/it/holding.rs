//! What the options say while the lock is held, and what the command sees.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_testkit::raw::Value;
use tenure_testkit::server::RedisOptions;

use crate::support::{Bench, end_of, tenure, until, until_written};

#[test]
fn the_command_knows_key_token_owner_and_engine_and_no_secret() {
    let bench = Bench::with(RedisOptions { password: Some("secret".to_owned()), ..RedisOptions::default() });
    let address = bench.server.address();
    let script = "printf '%s\\n' \"$TENURE_KEY\" \"$TENURE_OWNER\" \"$TENURE_ENGINE\" \"$TENURE_TOKEN\" \"$TENURE_URL\"; \
                  echo > started; sleep 0.5";
    let url = format!("redis://:secret@{address}?ttl=20s");
    let mut command = tenure(&["run", "a key", "--", "sh", "-c", script]);
    command.env("TENURE_URL", &url).current_dir(bench.file("."));
    let run = crate::support::Running::start(command);
    until_written(&bench.file("started"));
    let value = bench.ask(&["GET", "a key"]).text().unwrap();
    let end = run.end();
    let seen: Vec<_> = end.out.lines().collect();
    assert_eq!(end.code(), 0, "{}", end.err);
    assert_eq!(seen[0], "a key");
    assert_eq!(seen[1].len(), 32);
    assert!(value.contains(seen[1]), "{value} does not name the owner {}", seen[1]);
    assert_eq!(seen[2], format!("redis://{address}"));
    assert!(seen[3].parse::<u64>().unwrap() > 0);
    assert_eq!(seen[4], url, "what was there stays as it was");
}

#[test]
fn a_hold_has_its_longest_time() {
    let bench = Bench::new();
    let script = "trap '' TERM; echo > started; while :; do sleep 0.01; done";
    let begun = Instant::now();
    let run = bench.run(&["--max-hold", "500ms", "--grace", "300ms", "k", "--", "sh", "-c", script]);
    let end = run.end();
    assert_eq!(end.code(), 76, "{}", end.err);
    assert!(end.err.contains("--max-hold"), "{}", end.err);
    assert!(begun.elapsed() >= Duration::from_millis(800), "{:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert_eq!(bench.traces(), [""; 0], "released at once");

    let run = bench.run(&["--max-hold", "300ms", "--lost-code", "9", "k", "--", "sleep", "30"]);
    assert_eq!(run.end().code(), 9);
    let run = bench.run(&["--max-hold", "10s", "k", "--", "sh", "-c", "exit 4"]);
    assert_eq!(run.end().code(), 4, "a command that ends before has its own code");
}

#[test]
fn codes_of_ones_own_take_the_place_of_two() {
    let bench = Bench::new();
    let holder = bench.run(&["--ttl", "1s", "--lost-code", "17", "k", "--", "sleep", "30"]);
    bench.until_held("k", true);
    assert_eq!(bench.run(&["--no-wait", "--busy-code", "0", "k", "--", "touch", "ran"]).end().code(), 0);
    assert_eq!(bench.run(&["--wait", "10ms", "--busy-code=5", "k", "--", "touch", "ran"]).end().code(), 5);
    assert!(!bench.file("ran").exists());
    bench.ask(&["DEL", "k"]);
    assert_eq!(holder.end().code(), 17);
    let wrong = bench.run(&["--busy-code", "256", "k", "--", "true"]).end();
    assert_eq!(wrong.code(), 64, "{}", wrong.err);
}

#[test]
fn a_loss_that_is_ignored_is_told_and_the_command_runs_on() {
    let bench = Bench::new();
    let script = "echo > started; sleep 2; echo > done; exit 3";
    let run = bench.run(&["--ttl", "1s", "--on-lost", "ignore", "k", "--", "sh", "-c", script]);
    until_written(&bench.file("started"));
    bench.ask(&["DEL", "k"]);
    let end = run.end();
    assert_eq!(end.code(), 76, "{}", end.err);
    assert!(end.err.contains("runs on without it"), "{}", end.err);
    assert!(bench.file("done").exists());
    assert_eq!(bench.ask(&["EXISTS", "k"]), Value::Int(0));
}

#[test]
fn a_loss_that_kills_asks_nobody() {
    let bench = Bench::new();
    let script = "trap 'echo > asked' TERM; echo $$ > started; while :; do sleep 0.01; done";
    let run = bench.run(&["--ttl", "1s", "--on-lost", "kill", "k", "--", "sh", "-c", script]);
    until_written(&bench.file("started"));
    bench.ask(&["DEL", "k"]);
    assert_eq!(run.end().code(), 76);
    assert!(!bench.file("asked").exists());

    std::fs::remove_file(bench.file("started")).unwrap();
    let run = bench.run(&["--ttl", "1s", "--on-lost", "kill", "k", "--", "sh", "-c", script]);
    let pid = until_written(&bench.file("started"));
    run.signal(Signal::STOP);
    until("it is killed", || !crate::support::runs(&pid));
    assert_eq!(bench.ask(&["EXISTS", "k"]), Value::Int(1), "before its validity ended");
    run.signal(Signal::CONT);
    assert_eq!(run.end().code(), 76);
    assert!(!bench.file("asked").exists());
}

#[test]
fn a_grace_that_is_longer_than_a_third_of_the_term_is_refused() {
    let bench = Bench::new();
    for words in [&["--ttl", "3s", "--grace", "1001ms"][..], &["--grace", "11s"]] {
        let end = bench.run(&[words, &["k", "--", "touch", "ran"]].concat()).end();
        assert_eq!(end.code(), 64, "{}", end.err);
        assert!(end.err.contains("a third of the term"), "{}", end.err);
    }
    assert_eq!(bench.run(&["--ttl", "3s", "--grace", "1s", "k", "--", "true"]).end().code(), 0);
    assert!(!bench.file("ran").exists());
    assert_eq!(bench.traces(), [""; 0]);
}

#[test]
fn signals_that_end_nothing_are_passed_on_too() {
    let bench = Bench::new();
    let script = "for s in USR1 USR2 WINCH; do trap \"echo $s >> seen\" $s; done; \
                  trap 'exit 6' TERM; echo > started; while :; do sleep 0.01; done";
    let run = bench.run(&["k", "--", "sh", "-c", script]);
    until_written(&bench.file("started"));
    for (signal, lines) in [(Signal::USR1, 1), (Signal::USR2, 2), (Signal::WINCH, 3)] {
        run.signal(signal);
        until("it is seen", || {
            std::fs::read_to_string(bench.file("seen")).is_ok_and(|seen| seen.lines().count() == lines)
        });
    }
    run.signal(Signal::TERM);
    let end = run.end();
    assert_eq!(end.code(), 6, "{}", end.err);
    assert_eq!(until_written(&bench.file("seen")), "USR1\nUSR2\nWINCH");
}

/// Nobody reads what is said: the command runs and its code counts.
#[test]
fn a_closed_pipe_harms_nothing() {
    let bench = Bench::new();
    let url = bench.url();
    let mut command = tenure(&["run", "-v", "--engine", &url, "k", "--", "sh", "-c", "exit 5"]);
    let mut run = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((run.stdout.take(), run.stderr.take()));
    assert_eq!(run.wait().unwrap().code(), Some(5));

    // The command itself dies of it, as it would without us.
    let mut command =
        tenure(&["run", "-v", "--engine", &url, "k", "--", "sh", "-c", "while :; do echo; done"]);
    let mut run = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((run.stdout.take(), run.stderr.take()));
    let status = run.wait().unwrap();
    assert_eq!((status.code(), status.signal()), (Some(128 + 13), None));

    let closed = format!("exec {} run --engine {url} k -- true <&- >&- 2>&-", env!("CARGO_BIN_EXE_tenure"));
    let mut command = Command::new("sh");
    command.args(["-c", &closed]);
    assert_eq!(end_of(command).code(), 0);
    assert_eq!(bench.traces(), [""; 0]);
}
