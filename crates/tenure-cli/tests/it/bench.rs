//! `tenure bench`, on the memory engine and on a real server.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Bench, End, Running, end_of, tenure, until};

/// The lines of `--json`.
fn objects(end: &End) -> Vec<Value> {
    assert_eq!(end.code(), 0, "{}", end.err);
    let objects = end.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let objects: Vec<Value> = objects.collect();
    assert!(objects.iter().all(|object| object["v"] == 1), "{}", end.out);
    objects
}

/// The names of an object's fields, sorted.
fn names(object: &Value) -> String {
    let mut names: Vec<_> = object.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names.join(" ")
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found = objects.iter().find(|object| object["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} in {objects:?}"))
}

/// Everything on the server, the counter of tokens too.
fn all_keys(bench: &Bench) -> Vec<String> {
    bench.ask(&["KEYS", "*"]).texts()
}

/// Programs read these names.
#[test]
fn golden_json_on_redis_and_nothing_is_left() {
    let bench = Bench::new();
    let end = end_of(tenure(&["bench", &bench.url(), "--quick", "--json"]));
    let objects = objects(&end);
    let turns = "client_cpu_us fewest_grants grants_per_s hand_overs_per_s kind most_over_fewest v wait_p50_ms wait_p99_ms";
    let table = [
        ("plain", "depth kind pairs_per_s v".to_owned()),
        ("replay", "depth kind pairs_per_s v".to_owned()),
        (
            "pairs",
            "client_cpu_us kind over_plain over_replay pair_p50_ms pair_p999_ms pair_p99_ms pairs_per_s tasks v"
                .to_owned(),
        ),
        ("one_key", turns.replace(" v ", " tasks v ")),
        ("clients", turns.replace("client_cpu_us", "client_cpu_us clients").replace(" v ", " over_poller v ")),
        ("poller", turns.replace("client_cpu_us", "client_cpu_us clients")),
        (
            "hand_over",
            "hand_over_p50_ms hand_over_p99_ms hand_overs kind over_publish publish_p50_ms publish_p99_ms v"
                .to_owned(),
        ),
        (
            "held",
            "acquired_in_ms client_cpu_percent commands_per_s kind leases lost lowest_remaining_of_term memory_mb v"
                .to_owned(),
        ),
    ];
    for (kind, fields) in table {
        assert_eq!(names(of_kind(&objects, kind)), fields, "{kind}");
    }
    let machine = of_kind(&objects, "machine");
    assert_eq!(machine["engine"], "redis");
    assert!(machine["server"].as_str().unwrap().starts_with("redis "), "{machine}");
    assert!(machine["cores"].is_string() && machine["kernel"].is_string(), "{machine}");

    let number = |kind, name| of_kind(&objects, kind)[name].as_f64().unwrap();
    for (kind, name) in [("plain", "pairs_per_s"), ("replay", "pairs_per_s"), ("pairs", "pairs_per_s")] {
        assert!(number(kind, name) > 100.0, "{kind} {name}");
    }
    assert!(number("pairs", "pair_p50_ms") <= number("pairs", "pair_p999_ms"));
    assert!(number("clients", "hand_overs_per_s") <= number("clients", "grants_per_s"));
    assert!(number("poller", "grants_per_s") > 0.0);
    assert!((0.5..=1.0).contains(&number("held", "lowest_remaining_of_term")));
    assert_eq!((number("held", "lost"), number("held", "leases")), (0.0, 200.0));
    assert_eq!(all_keys(&bench), [""; 0]);
}

#[test]
fn golden_json_on_memory() {
    let objects = objects(&end_of(tenure(&["bench", "memory:", "--quick", "--json"])));
    let kinds: Vec<_> = objects.iter().map(|object| object["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["machine", "pairs", "pairs", "one_key", "hand_over", "held"]);
    assert_eq!(
        names(of_kind(&objects, "pairs")),
        "client_cpu_us kind pair_p50_ms pair_p999_ms pair_p99_ms pairs_per_s tasks v"
    );
    assert_eq!(names(of_kind(&objects, "hand_over")), "hand_over_p50_ms hand_over_p99_ms hand_overs kind v");
    assert_eq!(
        names(of_kind(&objects, "held")),
        "acquired_in_ms client_cpu_percent kind leases lost lowest_remaining_of_term memory_mb v"
    );
}

/// Clients of one file see each other; nothing is left in it, nor beside it.
#[test]
fn a_file_is_measured_and_left_empty() {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("locks.sqlite");
    let url = format!("sqlite:{}", file.display());
    let is_clean = || {
        let end = end_of(tenure(&["who", "--engine", &url, "--json"]));
        assert_eq!((end.code(), end.out.as_str()), (0, ""), "{}", end.err);
        let clients = std::fs::read_dir(folder.path().join("locks.sqlite.clients")).unwrap();
        assert_eq!(clients.count(), 0);
    };
    let objects = objects(&end_of(tenure(&["bench", &url, "--quick", "--json"])));
    assert!(of_kind(&objects, "clients")["hand_overs_per_s"].as_f64().unwrap() > 0.0);
    is_clean();

    let words = ["--only", "held", "--held", "2000", "--held-for", "30s"];
    let running = Running::start(tenure(&[&["bench", &url], &words[..]].concat()));
    until("leases are held", || {
        end_of(tenure(&["who", "--engine", &url, "--json"])).out.lines().count() > 100
    });
    running.signal(Signal::INT);
    assert_eq!(running.end().code(), 130);
    is_clean();
}

/// Goals are told, whether they are met or not.
#[test]
fn goals_are_told_with_what_was_measured() {
    let line = ["bench", "memory:", "--only", "one-key", "--runs", "1", "--span", "50ms"];
    let goals = objects(&end_of(tenure(&[&line[..], &["--json"]].concat())));
    let goal = of_kind(&goals, "goal");
    assert_eq!(names(goal), "at_least kind measured met v what");
    assert_eq!(goal["at_least"], 500_000.0);

    let end = end_of(tenure(&line));
    assert_eq!(end.code(), 0, "{}", end.err);
    assert!(end.out.contains("Goals of the project"), "{}", end.out);
    assert!(end.out.contains(">= 500,000"), "{}", end.out);
    assert_eq!(end.err, "", "no progress where nobody sees it");
}

#[test]
fn a_table_a_page_and_charts() {
    let bench = Bench::new();
    let folder = bench.file("charts");
    let words = ["--quick", "--beside", "--only", "pairs,clients", "--plot", folder.to_str().unwrap()];
    let end = end_of(tenure(&[&["bench", &bench.url()], &words[..]].concat()));
    assert_eq!(end.code(), 0, "{}", end.err);
    assert!(end.out.starts_with("redis, connect_beside on one thread: 1 run of 100ms each"), "{}", end.out);
    for word in ["pairs/s", "/ replay", "16 tasks", "8 pollers, 1 ms", "most/fewest"] {
        assert!(end.out.contains(word), "{word}: {}", end.out);
    }
    for (chart, title) in [
        ("pairs.svg", "Uncontended pairs/s"),
        ("latency.svg", "Time of an uncontended pair, ms"),
        ("waits.svg", "Wait for one key, ms"),
    ] {
        let text = std::fs::read_to_string(folder.join(chart)).unwrap();
        let read = roxmltree::Document::parse(&text).unwrap();
        assert!(read.root_element().has_tag_name(("http://www.w3.org/2000/svg", "svg")));
        let texts: Vec<_> = read.descendants().filter_map(|node| node.text()).collect();
        assert!(texts.contains(&title), "{texts:?}");
        let is_line = |node: &roxmltree::Node<'_, '_>| node.tag_name().name() == "polyline";
        assert!(read.descendants().filter(is_line).count() >= 3, "{chart}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    let end = end_of(tenure(&["bench", "memory:", "--quick", "--only", "one-key", "--markdown"]));
    assert_eq!(end.code(), 0, "{}", end.err);
    assert!(end.out.contains("\n| 8 tasks | "), "{}", end.out);
    assert!(end.out.contains("\n| --- | ---: |"), "{}", end.out);
}

/// Whatever it was doing: held leases, a queue of waiters, raw requests.
#[test]
fn an_interrupt_leaves_nothing_behind() {
    let bench = Bench::new();
    for (part, signal, code) in [
        ("held", Signal::INT, 130),
        ("clients", Signal::INT, 130),
        ("pairs", Signal::TERM, 143),
        ("hand-over", Signal::INT, 130),
    ] {
        let words = ["--only", part, "--span", "30s", "--held", "3000", "--held-for", "30s"];
        let running = Running::start(tenure(&[&["bench", &bench.url()], &words[..]].concat()));
        // More than the counter and its run id.
        until(part, || all_keys(&bench).len() > 2);
        running.signal(signal);
        let begun = Instant::now();
        let end = running.end();
        assert_eq!(end.code(), code, "{part}: {}", end.err);
        assert_eq!(all_keys(&bench), [""; 0], "{part}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{part}: {:?}", begun.elapsed());
    }
}

#[test]
fn it_ends_when_its_time_is_over() {
    let bench = Bench::new();
    let words = ["--only", "clients", "--span", "30s", "--max-time", "700ms"];
    let end = end_of(tenure(&[&["bench", &bench.url()], &words[..]].concat()));
    assert_eq!(end.code(), 75, "{}", end.err);
    assert!(end.err.contains("--max-time 700ms"), "{}", end.err);
    assert_eq!(all_keys(&bench), [""; 0]);
}

#[test]
fn a_server_that_dies_meanwhile_is_told_of() {
    let bench = Bench::new();
    let words = ["--only", "pairs", "--span", "20s"];
    let running = Running::start(tenure(&[&["bench", &bench.url()], &words[..]].concat()));
    until("it measures", || all_keys(&bench).len() > 2);
    bench.server.kill();
    let end = running.end();
    assert_eq!(end.code(), 69, "{}", end.err);
    assert!(end.err.starts_with("tenure: bench: "), "{}", end.err);
}

#[test]
fn what_is_no_engine_is_refused_with_a_reason() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (words, code, reason) in [
        (&["bench", "nonsense:"][..], 64, "no engine is known for \"nonsense:\""),
        (&["bench", "redis://"], 64, "host"),
        (&["bench", &format!("redis://:secret@{free}")], 69, "connect"),
        (&["bench", "memory:", "--held", "100001"], 64, "--held 100001"),
        (&["bench", "memory:", "--only", "nothing"], 64, "possible values"),
        (&["bench", "memory:", "--quick", "--only", "held", "--plot", "/proc/nowhere"], 69, "/proc/nowhere"),
    ] {
        let end = end_of(tenure(words));
        assert_eq!(end.code(), code, "{words:?}: {}", end.err);
        assert!(end.err.contains(reason), "{words:?}: {}", end.err);
        assert!(!end.err.contains("secret") && end.out.is_empty(), "{words:?}: {}", end.err);
    }
}

/// A password, and a prefix of the user's that stays before ours and keeps its keys.
#[test]
fn a_login_and_a_prefix_are_kept() {
    let bench = Bench::new();
    bench.ask(&["SET", "app:mine", "1"]);
    bench.ask(&[
        "ACL",
        "SETUSER",
        "bench",
        "on",
        ">p@ss",
        "~app:tenure-bench:*",
        "&app:tenure-bench:*",
        "+@all",
    ]);
    let url = format!("redis://bench:p%40ss@{}/0?prefix=app:&ttl=20s", bench.server.address());
    let end = end_of(tenure(&["bench", &url, "--quick", "--json"]));
    objects(&end);
    assert!(!end.out.contains("p@ss") && !end.out.contains("p%40ss"));
    assert_eq!(all_keys(&bench), ["app:mine"]);
}
