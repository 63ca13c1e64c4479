//! Wrong input: a clear message, the right code, nothing written. And secrets, which never show.

use tenure_testkit::server::RedisOptions;

use crate::support::{Bench, End, end_of, tenure};

fn refused(end: &End, says: &str) {
    assert_eq!(end.code(), 64, "{end:?}");
    assert!(end.err.contains(says), "{says:?} is not in {:?}", end.err);
    assert_eq!(end.out, "");
}

#[test]
fn wrong_usage_is_64() {
    for words in
        [&["run"][..], &["run", "k"], &["run", "k", "--"], &["walk"], &["run", "--nonsense", "k", "--", "x"]]
    {
        assert_eq!(end_of(tenure(words)).code(), 64, "{words:?}");
    }
}

#[test]
fn keys_and_durations_are_checked_before_anything_is_sent() {
    let bench = Bench::new();
    let long = "x".repeat(1025);
    let try_one = |words: &[&str], says: &str| refused(&bench.run(words).end(), says);
    try_one(&["", "--", "true"], "must not be empty");
    try_one(&[&long, "--", "true"], "1024 bytes");
    try_one(&["a\u{1b}[31mb", "--", "true"], "a\\u{1b}[31mb");
    try_one(&["--ttl", "0s", "k", "--", "true"], "longer than zero");
    try_one(&["--ttl", "-1s", "k", "--", "true"], "negative");
    try_one(&["--ttl", "5", "k", "--", "true"], "no unit");
    try_one(&["--ttl", "1ms", "k", "--", "true"], "100ms");
    try_one(&["--ttl", "200000d", "k", "--", "true"], "out of bounds");
    try_one(&["--ttl", "99999999999999999999h", "k", "--", "true"], "too long");
    try_one(&["--wait", "soon", "k", "--", "true"], "not a duration");
    try_one(&["--wait", "1s", "--no-wait", "k", "--", "true"], "cannot be used with");
    assert_eq!(bench.traces(), [""; 0], "nothing was written");
}

#[test]
fn the_ttl_of_the_url_counts_unless_the_option_is_there() {
    let bench = Bench::new();
    let url = format!("{}?ttl=8s", bench.url());
    for (option, at_most) in [(&[][..], 8_000), (&["--ttl", "20s"][..], 20_000)] {
        let running = bench.run_on(&url, &[option, &["k", "--", "sleep", "30"]].concat());
        bench.until_held("k", true);
        let term = bench.ask(&["PTTL", "k"]).int().unwrap();
        assert!((at_most - 4_000..=at_most).contains(&term), "{option:?}: {term}");
        drop(running);
        bench.until_held("k", false);
    }
    for (url, says) in [
        (format!("{}?ttl=5ms", bench.url()), "100ms to 30 days"),
        (format!("{}?ttl=2m&max_ttl=1m", bench.url()), "100ms to 60s"),
        (format!("{}?ttl=soon", bench.url()), "not a duration"),
    ] {
        refused(&bench.run_on(&url, &["k", "--", "true"]).end(), says);
    }
}

#[test]
fn an_engine_that_is_not_understood_is_refused() {
    for url in ["nonsense", "nosuch://secret@host", "redis://h:99999999"] {
        let end = end_of(tenure(&["run", "--engine", url, "k", "--", "true"]));
        assert_eq!(end.code(), 64, "{url}: {}", end.err);
        assert!(!end.err.contains("secret"), "{}", end.err);
    }
}

#[test]
fn the_option_counts_before_the_variable_before_the_file() {
    let bench = Bench::new();
    let named = |option: Option<&str>, variable: Option<&str>, file: Option<&str>| {
        let mut command = tenure(&["run", "-v"]);
        command.args(option.map(|url| format!("--engine={url}")));
        command.envs(variable.map(|url| ("TENURE_URL", url)));
        if let Some(url) = file {
            std::fs::write(bench.file("url"), format!("{url}\n")).unwrap();
            command.env("TENURE_URL_FILE", bench.file("url"));
        }
        end_of({
            command.args(["k", "--", "true"]);
            command
        })
    };
    let url = bench.url();
    let wrong = Some("nosuch:");
    for (end, source) in [
        (named(Some(&url), wrong, wrong), "--engine"),
        (named(None, Some(&url), wrong), "TENURE_URL"),
        (named(None, None, Some(&url)), "TENURE_URL_FILE"),
        (named(None, Some(""), Some(&url)), "TENURE_URL_FILE"),
    ] {
        assert_eq!(end.code(), 0, "{end:?}");
        assert!(end.err.contains(&format!("engine {url} (from {source})")), "{}", end.err);
    }
    let mut command = tenure(&["run", "k", "--", "true"]);
    command.env("TENURE_URL_FILE", bench.file("none"));
    refused(&end_of(command), "could not be read");
    refused(&named(None, wrong, None), "TENURE_URL: connect: no engine is known for \"nosuch:\"");
    refused(&named(None, None, Some("")), "TENURE_URL_FILE holds no URL");
}

/// Where none is named, it is a file of the user's own.
#[test]
fn the_engine_is_sqlite_in_the_state_folder_unless_said() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::TempDir::new().unwrap();
    for (variable, folder) in [("HOME", ".local/state/tenure"), ("XDG_STATE_HOME", "tenure")] {
        let mut command = tenure(&["run", "-v", "k", "--", "sh", "-c", "echo $TENURE_ENGINE"]);
        command.env("HOME", home.path()).env_remove("XDG_STATE_HOME").env(variable, home.path());
        let end = end_of(command);
        let folder = home.path().join(folder);
        let url = format!("sqlite:{}/locks.sqlite", folder.display());
        assert_eq!((end.code(), end.out.trim()), (0, url.as_str()), "{}", end.err);
        assert!(end.err.contains(&format!("engine {url} (from the state folder)")), "{}", end.err);
        assert_eq!(std::fs::metadata(folder).unwrap().permissions().mode() & 0o777, 0o700);
    }
    let mut command = tenure(&["run", "k", "--", "true"]);
    command.env("HOME", "").env_remove("XDG_STATE_HOME");
    refused(&end_of(command), "HOME is not set");
    std::fs::write(home.path().join("file"), "").unwrap();
    let mut command = tenure(&["run", "k", "--", "true"]);
    command.env("XDG_STATE_HOME", home.path().join("file"));
    refused(&end_of(command), "cannot be made");
}

#[test]
fn a_wrong_password_is_told_at_once_and_never_shown() {
    let bench =
        Bench::with(RedisOptions { password: Some("right-secret".to_owned()), ..RedisOptions::default() });
    let with_password = |password: &str| {
        let url = format!("redis://:{password}@{}", bench.server.address());
        end_of(tenure(&["run", "-v", "--engine", &url, "k", "--", "echo", "ran"]))
    };
    let end = with_password("right-secret");
    assert_eq!((end.code(), end.out.as_str()), (0, "ran\n"), "{}", end.err);
    assert!(!end.err.contains("right-secret"), "{}", end.err);

    let begun = std::time::Instant::now();
    let end = with_password("wrong-secret");
    assert_eq!((end.code(), end.out.as_str()), (69, ""), "{}", end.err);
    assert!(begun.elapsed().as_secs() < 5, "it is not tried again");
    assert!(!end.err.contains("wrong-secret"), "{}", end.err);
    assert!(end.err.contains("connect"), "{}", end.err);
}
