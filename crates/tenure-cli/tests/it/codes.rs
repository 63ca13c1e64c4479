//! Each exit code, and what the child sees.

use tenure_testkit::raw::Value;

use crate::support::{Bench, end_of, tenure};

#[test]
fn the_childs_own_code_and_output_pass_through() {
    let bench = Bench::new();
    for code in [0, 1, 7, 75, 255] {
        let script = format!("echo out; echo err >&2; exit {code}");
        let end = bench.run(&["jobs/1", "--", "sh", "-c", &script]).end();
        assert_eq!(end.code(), code);
        assert_eq!((end.out.as_str(), end.err.as_str()), ("out\n", "err\n"));
    }
    assert_eq!(bench.ask(&["EXISTS", "jobs/1"]), Value::Int(0), "released at the end");
}

#[test]
fn a_signal_that_ends_the_child_is_told_as_a_shell_tells_it() {
    let bench = Bench::new();
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("SEGV", 139)] {
        let end = bench.run(&["k", "--", "sh", "-c", &format!("kill -{signal} $$")]).end();
        assert_eq!(end.code(), code, "{signal}");
    }
}

#[test]
fn the_child_knows_key_and_token_and_the_token_grows() {
    let bench = Bench::new();
    let token = || {
        let end = bench.run(&["a key", "--", "sh", "-c", "echo \"$TENURE_KEY:$TENURE_TOKEN\""]).end();
        assert_eq!(end.code(), 0);
        end.out.trim().strip_prefix("a key:").unwrap().parse::<u64>().unwrap()
    };
    let (first, second) = (token(), token());
    assert!(0 < first && first < second, "{first} {second}");
}

#[test]
fn the_key_is_held_while_the_child_runs() {
    let bench = Bench::new();
    let mut held = bench.run(&["k", "--", "sleep", "1"]);
    bench.until_held("k", true);
    assert!(held.is_running());
    assert_eq!(held.end().code(), 0);
    assert_eq!(bench.ask(&["EXISTS", "k"]), Value::Int(0));
}

#[test]
fn the_child_leads_a_process_group_of_its_own() {
    let bench = Bench::new();
    let end = bench.run(&["k", "--", "sh", "-c", "cut -d' ' -f1,5 /proc/$$/stat"]).end();
    let (pid, group) = end.out.trim().split_once(' ').unwrap();
    assert_eq!(pid, group);
}

#[test]
fn input_reaches_the_child() {
    let bench = Bench::new();
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "echo hello | \"$0\" run --engine \"$1\" k -- cat"]);
    shell.args([env!("CARGO_BIN_EXE_tenure"), &bench.url()]);
    let output = shell.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "hello\n");
}

#[test]
fn a_command_that_cannot_be_started_is_told_as_shells_tell_it() {
    let bench = Bench::new();
    let end = bench.run(&["k", "--", "no-such-command-anywhere"]).end();
    assert_eq!(end.code(), 127);
    assert!(end.err.contains("no-such-command-anywhere"), "{}", end.err);

    std::fs::write(bench.file("plain"), "not a program").unwrap();
    let end = bench.run(&["k", "--", "./plain"]).end();
    assert_eq!(end.code(), 126, "{}", end.err);
    assert_eq!(bench.run(&["k", "--", "/"]).end().code(), 126);
    assert_eq!(bench.ask(&["EXISTS", "k"]), Value::Int(0), "released again");
}

#[test]
fn an_engine_that_cannot_be_reached_is_69() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let end = end_of(tenure(&["run", "--engine", &format!("redis://{free}"), "k", "--", "touch", "never"]));
    assert_eq!(end.code(), 69, "{}", end.err);
    assert!(end.err.starts_with("tenure: connect"), "{}", end.err);
}

#[test]
fn an_engine_that_does_not_answer_is_69_after_a_while() {
    let bench = Bench::new();
    bench.server.pause().unwrap();
    let begun = std::time::Instant::now();
    let end = bench.run(&["k", "--", "touch", "never"]).end();
    assert_eq!(end.code(), 69, "{}", end.err);
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    assert!(!bench.file("never").exists());
    bench.server.resume().unwrap();
}

#[test]
fn a_key_that_is_no_lock_is_69_and_stays() {
    let bench = Bench::new();
    bench.ask(&["HSET", "k", "field", "value"]);
    let end = bench.run(&["k", "--", "true"]).end();
    assert_eq!(end.code(), 69, "{}", end.err);
    assert!(end.err.starts_with("tenure: acquire \"k\" on redis: the key holds a hash"), "{}", end.err);
    assert!(end.err.contains("the command was not run"), "{}", end.err);
    assert_eq!(bench.ask(&["HGET", "k", "field"]).text().as_deref(), Some("value"));
}

#[test]
fn help_and_version_are_no_failure() {
    let help = end_of(tenure(&["run", "--help"]));
    assert_eq!(help.code(), 0);
    assert!(help.out.contains("76   the lock was lost"), "{}", help.out);
    assert_eq!(end_of(tenure(&["--version"])).code(), 0);
}
