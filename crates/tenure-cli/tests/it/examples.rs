//! The library's examples, run as a reader would, on memory and on Redis.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::support::{Bench, End, end_of};

/// Where the examples lie, built from what the source says now.
///
/// `cargo test --workspace --all-features` has built them already; then this takes a moment.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--locked", "--workspace", "--all-features", "--examples"]);
        cargo.args(["--manifest-path", manifest]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        assert!(cargo.stdin(Stdio::null()).status().unwrap().success());
        Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap().join("examples")
    })
}

fn run(example: &str, url: &str) -> String {
    let mut command = Command::new(folder().join(example));
    command.arg(url).env_remove("TENURE_URL");
    let end: End = end_of(command);
    assert_eq!(end.code(), 0, "{example} on {url}: {end:?}");
    end.out
}

/// The engines, and a guard for what must go on running.
fn engines() -> (Bench, [String; 2]) {
    let bench = Bench::new();
    let urls = ["memory:".to_owned(), bench.url()];
    (bench, urls)
}

#[test]
fn order_service() {
    let (_bench, urls) = engines();
    for url in urls {
        let out = run("order_service", &url);
        let ends: Vec<_> = out.lines().filter(|line| line.starts_with("order ")).collect();
        let expected = [
            "order 42: done",
            "order 43: the card was declined",
            "order 43: done",
            "order 44: busy, try later",
        ];
        assert_eq!(ends, expected, "{url}");
    }
}

#[test]
fn last_unit() {
    let (_bench, urls) = engines();
    for url in urls {
        let out = run("last_unit", &url);
        assert_eq!(out.matches("bought it").count(), 1, "{url}: {out}");
        assert_eq!(out.matches("sold out").count(), 4, "{url}: {out}");
        assert!(out.ends_with("sold 1, left 0\n"), "{url}: {out}");
    }
}

#[test]
fn watchdog() {
    let (_bench, urls) = engines();
    for url in urls {
        let out = run("watchdog", &url);
        for line in
            ["wrote 3 pages in three terms; still held: true", "still held: false", "released: WasLost"]
        {
            assert!(out.lines().any(|found| found == line), "{url}: {line:?} is not in {out}");
        }
        assert!(out.contains("stopped: run \"reports/nightly\""), "{url}: {out}");
    }
}
