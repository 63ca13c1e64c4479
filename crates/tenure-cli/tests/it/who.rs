//! `tenure who`: who holds what, once and from then on.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tenure_testkit::raw::Value as Answer;

use crate::piped::{Piped, Raw, urls};
use crate::support::{Bench, End, end_of, tenure, until};

fn who(url: &str, words: &[&str]) -> End {
    let end = end_of(tenure(&[&["who", "--engine", url], words].concat()));
    assert_eq!(end.code(), 0, "{end:?}");
    end
}

fn rows(end: &End) -> Vec<Value> {
    end.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn it_shows_who_holds_and_how_many_wait() {
    let bench = Bench::new();
    for url in urls(&bench) {
        let run = bench.run_on(&url, &["jobs/nightly", "--", "sleep", "30"]);
        let mut hold = Piped::hold(&url, &["--ttl", "20s", "jobs/a key"]);
        let granted = hold.event("granted");
        let mut waiter = Piped::hold(&url, &["jobs/a key"]);
        waiter.event("waiting");
        until("both are held", || rows(&who(&url, &["--json"])).len() == 2);

        let [held, nightly] = &rows(&who(&url, &["--json"]))[..] else { panic!("two rows") };
        assert_eq!(nightly["key"], "jobs/nightly");
        let mut held = held.clone();
        let holder = &mut held["holders"][0];
        let left = holder["remaining_ms"].take().as_u64().unwrap();
        assert!((12_000..=20_000).contains(&left), "{left}");
        let since = holder["since"].take();
        assert!(since.as_str().unwrap() <= granted["at"].as_str().unwrap(), "{since} {granted}");
        assert!(holder["host"].take().is_string());
        // Only where the store keeps it; then it is the one of the grant.
        let raw = holder["raw_token"].take();
        assert!(raw.is_null() || raw == granted["raw_token"], "{raw}");
        let holder = json!({ "owner": granted["owner"], "mode": "exclusive", "host": null, "pid": hold.pid(),
            "since": null, "remaining_ms": null, "raw_token": null });
        let wanted = json!({ "v": 1, "key": "jobs/a key", "engine": granted["engine"], "holders": [holder],
            "waiting": 1 });
        assert_eq!(held, wanted);

        let table = who(&url, &[]);
        let lines: Vec<&str> = table.out.lines().collect();
        assert_eq!(lines.len(), 3, "{table:?}");
        assert!(lines[0].starts_with("KEY           HOST"), "{table:?}");
        let pid = hold.pid().to_string();
        assert!(lines[1].starts_with("jobs/a key    ") && lines[1].contains(&pid), "{table:?}");
        assert!(lines[1].ends_with(" 1") && lines[2].ends_with(" 0"), "{table:?}");
        let column = lines[0].find("MODE").unwrap();
        assert!(lines[1..].iter().all(|line| line[column..].starts_with("exclusive")), "{table:?}");
        assert_eq!(table.err, "");

        assert_eq!(rows(&who(&url, &["--json", "--starts-with", "jobs/n"])).len(), 1);
        assert_eq!(rows(&who(&url, &["--json", "jobs/nightly"])).len(), 1);
        let some = who(&url, &["--json", "--limit", "1"]);
        assert_eq!(rows(&some).len(), 1);
        assert!(some.err.contains("only 1 keys are shown"), "{some:?}");
        drop(run);
    }
}

#[test]
fn nothing_held_is_said_and_no_failure() {
    let bench = Bench::new();
    for url in urls(&bench) {
        let end = who(&url, &[]);
        assert_eq!(end.out, "");
        assert!(end.err.starts_with("tenure: nothing is held on "), "{end:?}");
        assert!(who(&url, &["--starts-with", "x\u{7f}"]).err.contains("starts with \"x\\u{7f}\""));
        let free = who(&url, &["k"]);
        assert!(free.out.is_empty() && free.err.starts_with("tenure: nobody holds \"k\" on "), "{free:?}");
        let free = rows(&who(&url, &["--json", "k"]));
        assert_eq!((&free[0]["holders"], &free[0]["waiting"]), (&json!([]), &json!(0)));
    }
}

#[test]
fn the_names_in_the_store_are_shown_where_that_is_wanted() {
    let bench = Bench::new();
    let url = format!("{}?prefix=app:", bench.url());
    let mut hold = Piped::hold(&url, &["k"]);
    hold.event("granted");
    let table = who(&url, &["--physical"]);
    assert!(table.out.contains("\n  kept as app:k\n  kept as app:tenure:{app:k}:queue\n"), "{table:?}");
    let names = &rows(&who(&url, &["--physical", "--json"]))[0]["physical"];
    assert_eq!(names[0], "app:k");
    assert_eq!(bench.ask(&["EXISTS", names[0].as_str().unwrap()]), Answer::Int(1));
    let free = who(&url, &["--physical", "free"]);
    assert!(free.out.contains("kept as app:free") && free.out.contains("nobody"), "{free:?}");
}

#[test]
fn other_holders_are_shown_and_what_is_no_lock_is_69() {
    let bench = Bench::new();
    bench.ask(&["SET", "k", "go-program", "PX", "30000"]);
    let table = who(&bench.url(), &["k"]);
    assert!(table.out.contains("(no client of Tenure's)"), "{table:?}");
    assert_eq!(rows(&who(&bench.url(), &["--json", "k"]))[0]["holders"][0]["owner"], Value::Null);
    bench.ask(&["HSET", "h", "a", "b"]);
    let end = end_of(tenure(&["who", "--engine", &bench.url(), "h"]));
    assert_eq!(end.code(), 69, "{end:?}");
}

#[test]
fn what_a_terminal_would_act_upon_is_made_visible() {
    let bench = Bench::new();
    let value = "t1:000000000000000000000000000000ab:7@h\u{1b}[31m:1764500000000";
    bench.ask(&["SET", "k\u{202e}", value, "PX", "30000"]);
    let table = who(&bench.url(), &[]);
    assert!(table.out.contains("k\\u{202e}") && !table.out.contains(['\u{1b}', '\u{202e}']), "{table:?}");
    let end = end_of(tenure(&["release", "--force", "--engine", &bench.url(), "k\u{202e}"]));
    assert_eq!(end.code(), 0);
    assert!(!(end.out + &end.err).contains(['\u{1b}', '\u{202e}']));
}

#[test]
fn a_pipe_that_is_closed_early_is_no_trouble() {
    let bench = Bench::new();
    let mut holds: Vec<Piped> = (0..5).map(|n| Piped::hold(&bench.url(), &[&format!("k{n}")])).collect();
    holds.iter_mut().for_each(|hold| drop(hold.event("granted")));
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "\"$0\" who --engine \"$1\" | head -1", env!("CARGO_BIN_EXE_tenure"), &bench.url()]);
    let end = end_of(shell);
    assert_eq!((end.code(), end.err.as_str()), (0, ""));
    assert!(end.out.starts_with("KEY"), "{end:?}");
    for words in [&["who", "--engine", &bench.url()][..], &["engines"], &["completions", "bash"]] {
        let mut early = Raw::tenure(words);
        early.close_output();
        assert!(matches!(early.code(), Some(0 | 141)), "{words:?}");
    }
}

#[test]
fn a_watch_tells_every_change() {
    let bench = Bench::new();
    for url in urls(&bench) {
        for words in [&["k"][..], &["--starts-with", "k"]] {
            let mut watch = Piped::tenure(&[&["who", "--engine", &url, "--watch", "--json"], words].concat());
            if words == ["k"] {
                assert_eq!(watch.json()["holders"], json!([]));
            }
            let mut hold = Piped::hold(&url, &["--ttl", "900ms", "k"]);
            let owner = hold.event("granted")["owner"].clone();
            let held = watch.json();
            assert_eq!((&held["key"], &held["holders"][0]["owner"]), (&json!("k"), &owner));
            assert!(watch.is_quiet(Duration::from_millis(2500)), "time that passes is no change");
            hold.close_input();
            let free = watch.json();
            assert_eq!((&free["key"], &free["holders"]), (&json!("k"), &json!([])));
            watch.signal(Signal::INT);
            let end = watch.end();
            assert_eq!((end.code(), end.out.as_str(), end.err.as_str()), (130, "", ""));
        }
    }
}

#[test]
fn a_watch_for_people_prints_tables_and_ends_with_its_reader() {
    let bench = Bench::new();
    let mut watch = Raw::tenure(&["who", "--watch", "--engine", &bench.url()]);
    assert!(watch.line().starts_with("tenure: nothing is held on redis"));
    let mut hold = Piped::hold(&bench.url(), &["k"]);
    hold.event("granted");
    assert_eq!(watch.line(), "\n");
    assert!(watch.line().starts_with("KEY"));
    assert!(watch.line().starts_with("k "));
    watch.close_output();
    assert_eq!(watch.code(), Some(141));
}

#[test]
fn a_watch_ends_where_the_engine_does_not_answer() {
    let bench = Bench::new();
    let mut watch = Piped::tenure(&["who", "--watch", "--json", "--engine", &bench.url(), "k"]);
    watch.json();
    bench.server.pause().unwrap();
    let end = watch.end();
    assert_eq!(end.code(), 69, "{end:?}");
    assert!(end.err.starts_with("tenure: look \"k\" on redis: "), "{end:?}");
    bench.server.resume().unwrap();
}
