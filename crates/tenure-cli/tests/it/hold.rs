//! `tenure hold`, as a program in another language uses it.

use std::io::Write;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_testkit::raw::Value;
use tenure_testkit::server::RedisOptions;

use crate::piped::{Piped, Raw, urls};
use crate::support::{Bench, end_of, tenure, until};

/// Who holds a key, asked by another process: lines of `tenure who`.
fn holders(url: &str, key: &str) -> Vec<serde_json::Value> {
    let end = end_of(tenure(&["who", "--json", "--engine", url, key]));
    assert_eq!(end.code(), 0, "{end:?}");
    let row: serde_json::Value = serde_json::from_str(&end.out).unwrap();
    row["holders"].as_array().unwrap().clone()
}

#[test]
fn it_holds_until_its_input_ends() {
    let bench = Bench::new();
    for url in urls(&bench) {
        let mut hold = Piped::hold(&url, &["--ttl", "20s", "--value", "build 7", "jobs/1"]);
        let granted = hold.event("granted");
        let fields: Vec<&String> = granted.as_object().unwrap().keys().collect();
        let wanted =
            ["at", "engine", "event", "key", "owner", "raw_token", "term_ms", "token", "v", "valid_ms"];
        assert_eq!(fields, wanted, "{granted}");
        assert_eq!((&granted["key"], &granted["term_ms"]), (&"jobs/1".into(), &20_000.into()));
        let token: u64 = granted["token"].as_str().unwrap().parse().unwrap();
        let raw: u64 = granted["raw_token"].as_str().unwrap().parse().unwrap();
        assert_eq!(token >> 10, raw);
        assert!((15_000..20_000).contains(&granted["valid_ms"].as_u64().unwrap()), "{granted}");
        let at = granted["at"].as_str().unwrap();
        assert!(at.len() == 24 && at.starts_with("20") && at.ends_with('Z'), "{at}");
        let holders = holders(&url, "jobs/1");
        assert_eq!(holders.len(), 1);
        assert_eq!(holders[0]["owner"], granted["owner"]);
        assert_eq!(holders[0]["pid"], hold.pid());
        assert_eq!(holders[0]["value"], "build 7");

        // What comes in is passed over, however much it is.
        hold.input().write_all(&vec![b'x'; 1_000_000]).unwrap();
        assert!(hold.is_quiet(Duration::from_millis(300)), "one event, one line");
        hold.close_input();
        let released = hold.event("released");
        assert_eq!(released["token"], granted["token"]);
        let end = hold.end();
        assert_eq!((end.code(), end.out.as_str(), end.err.as_str()), (0, "", ""));
        assert_eq!(crate::hold::holders(&url, "jobs/1"), [] as [serde_json::Value; 0]);

        let mut next = Piped::hold(&url, &["jobs/1"]);
        let next = next.event("granted")["token"].as_str().unwrap().parse::<u64>().unwrap();
        assert!(next > token);
    }
}

#[test]
fn input_that_has_ended_already_releases_at_once() {
    let bench = Bench::new();
    let end = end_of(tenure(&["hold", "--engine", &bench.url(), "k"]));
    assert_eq!(end.code(), 0, "{end:?}");
    assert_eq!(bench.traces(), [""; 0]);
}

#[test]
fn a_signal_releases() {
    let bench = Bench::new();
    for url in urls(&bench) {
        for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
            let mut hold = Piped::hold(&url, &["k"]);
            hold.event("granted");
            hold.signal(signal);
            hold.event("released");
            assert_eq!(hold.end().code(), code);
            assert_eq!(holders(&url, "k").len(), 0);
        }
    }
}

#[test]
fn it_tells_who_is_in_the_way() {
    let bench = Bench::new();
    for url in urls(&bench) {
        let mut first = Piped::hold(&url, &["k"]);
        let token = first.event("granted")["token"].clone();
        let mut second = Piped::hold(&url, &["k"]);
        let waiting = second.event("waiting");
        assert_eq!(waiting["pid"], first.pid(), "{waiting}");
        assert!(waiting["host"].is_string() && waiting["at"].is_string(), "{waiting}");
        let mut third = Piped::hold(&url, &["k"]);
        let mut ahead = third.event("waiting")["ahead"].clone();
        if ahead.is_null() {
            ahead = third.event("waiting")["ahead"].clone();
        }
        assert_eq!(ahead, 1);
        first.close_input();
        first.event("released");
        let granted = second.until_event("granted");
        assert!(granted["valid_ms"].as_u64().unwrap() > 20_000, "it waited for its full term: {granted}");
        let number = |token: &serde_json::Value| token.as_str().unwrap().parse::<u64>().unwrap();
        assert!(number(&granted["token"]) > number(&token));
        // A third one learns that somebody else is in the way now.
        let pid = second.pid();
        while third.event("waiting")["pid"] != pid {}
        third.signal(Signal::INT);
        assert_eq!(third.end().code(), 130);
        second.close_input();
        second.event("released");
    }
    assert_eq!(bench.traces(), [""; 0], "nothing is left in a queue");
}

#[test]
fn a_loss_is_told_and_ends_it_with_76() {
    let bench = Bench::new();
    let mut hold = Piped::hold(&bench.url(), &["--ttl", "900ms", "k"]);
    let granted = hold.event("granted");
    bench.ask(&["SET", "k", "somebody-else", "PX", "30000"]);
    let lost = hold.event("lost");
    assert_eq!((&lost["cause"], &lost["token"]), (&"taken".into(), &granted["token"]));
    assert_eq!(hold.end().code(), 76);

    bench.ask(&["DEL", "k"]);
    let mut hold = Piped::hold(&bench.url(), &["--ttl", "900ms", "k"]);
    hold.event("granted");
    bench.server.pause().unwrap();
    assert_eq!(hold.event("lost")["cause"], "expired");
    assert_eq!(hold.end().code(), 76);
    bench.server.resume().unwrap();
}

#[test]
fn what_is_held_elsewhere_is_75() {
    let bench = Bench::new();
    let mut first = Piped::hold(&bench.url(), &["k"]);
    first.event("granted");
    let alone = bench.traces();
    for words in [&["--no-wait", "k"][..], &["--wait", "300ms", "k"], &["--wait", "0", "k"]] {
        let hold = Piped::hold(&bench.url(), words);
        let end = hold.end();
        assert_eq!(end.code(), 75, "{end:?}");
        assert!(end.err.contains("\"k\"") && !end.out.contains("granted"), "{end:?}");
        assert_eq!(bench.traces(), alone);
    }
}

#[test]
fn renewals_are_told_where_that_is_wanted() {
    let bench = Bench::new();
    let mut hold = Piped::hold(&bench.url(), &["--ttl", "600ms", "--renewals", "k"]);
    let granted = hold.event("granted");
    for _ in 0..5 {
        let renewed = hold.event("renewed");
        assert_eq!(renewed["token"], granted["token"]);
        assert!((300..600).contains(&renewed["valid_ms"].as_u64().unwrap()), "{renewed}");
    }
}

/// A pipe that is full makes it neither lose the lock nor keep it for too long.
#[test]
fn a_reader_that_does_not_read_is_no_trouble() {
    let bench = Bench::new();
    let mut hold = Raw::tenure(&["hold", "--engine", &bench.url(), "--ttl", "100ms", "--renewals", "k"]);
    hold.narrow_output();
    assert!(hold.line().contains("granted"));
    // Some forty renewals; the pipe holds half of them.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(bench.ask(&["EXISTS", "k"]), Value::Int(1));
    hold.close_input();
    bench.until_held("k", false);
    assert_eq!(hold.code(), Some(0));
}

#[test]
fn output_that_nobody_reads_any_more_releases() {
    let bench = Bench::new();
    let url = bench.url();
    let mut hold = Raw::tenure(&["hold", "--engine", &url, "k"]);
    assert!(hold.line().contains("granted"));
    let mut waiter = Raw::tenure(&["hold", "--engine", &url, "k"]);
    assert!(waiter.line().contains("waiting"));
    let alone = 1;
    until("it waits", || bench.traces().len() > alone);
    waiter.close_output();
    assert_eq!(waiter.code(), Some(141));
    assert_eq!(bench.traces().len(), alone, "it left the queue: {:?}", bench.traces());

    let closed = Instant::now();
    hold.close_output();
    bench.until_held("k", false);
    assert!(closed.elapsed() < Duration::from_secs(2));
    assert_eq!(hold.code(), Some(141));
}

/// The program that holds dies without a word: the pipe tells.
#[test]
fn it_releases_when_its_user_is_killed() {
    let bench = Bench::new();
    let script = r#""$0" hold --engine "$1" k < fifo & exec 3> fifo; wait"#;
    let mut user = std::process::Command::new("sh");
    user.args(["-c", &format!("mkfifo fifo; {script}"), env!("CARGO_BIN_EXE_tenure"), &bench.url()]);
    user.current_dir(bench.file(".")).stdout(std::process::Stdio::null());
    let mut user = user.spawn().unwrap();
    bench.until_held("k", true);
    user.kill().unwrap();
    user.wait().unwrap();
    bench.until_held("k", false);
}

#[test]
fn wrong_input_and_engines_end_with_their_codes() {
    let bench = Bench::with(RedisOptions { password: Some("right".to_owned()), ..RedisOptions::default() });
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = bench.server.address();
    let table = [
        (format!("redis://{free}"), "k", 69, "connect"),
        (format!("redis://:wrong-secret@{address}"), "k", 69, "connect"),
        (format!("redis://:right@{address}"), "", 64, "must not be empty"),
        (format!("redis://:right@{address}"), "a\u{1b}b", 64, "a\\u{1b}b"),
        ("nosuch:".to_owned(), "k", 64, "no engine is known"),
    ];
    for words in [&["hold"][..], &["who"], &["release", "--force"]] {
        for (url, key, code, says) in &table {
            let end = end_of(tenure(&[words, &["--engine", url, key]].concat()));
            assert_eq!(end.code(), *code, "{words:?} {url}: {end:?}");
            assert!(end.err.starts_with("tenure: ") && end.err.contains(says), "{words:?} {url}: {end:?}");
            assert!(end.out.is_empty() && !end.err.contains("secret"), "{end:?}");
        }
    }
    let end = end_of(tenure(&["hold", "--engine", &bench.url(), "--ttl", "0s", "k"]));
    assert_eq!(end.code(), 64);
}
