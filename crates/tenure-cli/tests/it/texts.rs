//! What the command tells about itself: engines, help, completions, manual pages.

use std::process::Command;

use serde_json::{Value, json};

use crate::support::{Bench, end_of, tenure};

#[test]
fn engines_are_listed_with_their_promises() {
    let end = end_of(tenure(&["engines", "--json"]));
    assert_eq!((end.code(), end.err.as_str()), (0, ""));
    let rows: Vec<Value> = end.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let find = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    let memory = json!({ "v": 1, "name": "memory", "urls": ["memory:"],
        "modes": ["exclusive", "shared", "permits"], "fifo": true, "wakes": "push", "notes": true,
        "token": "the store's clock does not step back; the store ends with the process", "exclusion": "",
        "shortest_term_ms": 100, "longest_term_ms": 2_592_000_000_u64, "longest_queue": 4096 });
    assert_eq!(find("memory"), &memory);
    assert!(find("redis")["exclusion"].as_str().unwrap().contains("fail-over"));
    let table = end_of(tenure(&["engines"])).out;
    assert!(table.starts_with("NAME "), "{table}");
    assert!(table.contains("\nredis   exclusive "), "{table}");
    assert!(table.contains("Two can hold a key after: a server clock that steps forward"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100 && line.trim_end() == line), "{table}");
    for row in &rows {
        assert!(table.contains(&format!("\n\n{}\n", row["name"].as_str().unwrap())), "{table}");
    }
}

#[test]
fn every_command_has_examples() {
    let help = end_of(tenure(&["--help"]));
    for name in ["hold", "who", "release", "engines", "completions"] {
        assert!(help.out.contains(&format!("\n  {name} ")), "{}", help.out);
        let end = end_of(tenure(&[name, "--help"]));
        assert_eq!(end.code(), 0);
        assert!(end.out.contains(&format!("Examples:\n  tenure {name}")), "{}", end.out);
    }
}

#[test]
fn completions_are_ones_that_bash_takes() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let end = end_of(tenure(&["completions", shell]));
        assert_eq!(end.code(), 0, "{end:?}");
        assert!(end.out.contains("starts-with"), "{shell}");
    }
    let bench = Bench::new();
    std::fs::write(bench.file("tenure.bash"), end_of(tenure(&["completions", "bash"])).out).unwrap();
    let script = "source tenure.bash; COMP_WORDS=(tenure rel); COMP_CWORD=1; _tenure tenure rel tenure; echo \"$COMPREPLY\"";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script]).current_dir(bench.file("."));
    let end = end_of(bash);
    assert_eq!(end.out, "release\n", "{end:?}");
    assert_eq!(end_of(tenure(&["completions", "tcl"])).code(), 64);
}

#[test]
fn manual_pages_are_of_the_same_definitions() {
    let bench = Bench::new();
    let page = end_of(tenure(&["man"]));
    assert!(page.out.contains(".TH tenure 1"), "{}", page.out);
    let folder = bench.file(".");
    assert_eq!(end_of(tenure(&["man", "--dir", folder.to_str().unwrap()])).code(), 0);
    for (name, option) in
        [("hold", "renewals"), ("who", "physical"), ("release", "force"), ("run", "no\\-wait")]
    {
        let page = std::fs::read_to_string(bench.file(&format!("tenure-{name}.1"))).unwrap();
        assert!(page.contains(option), "{page}");
    }
    assert!(!bench.file("tenure-man.1").exists(), "it is hidden");
    let end = end_of(tenure(&["man", "--dir", "/nowhere"]));
    assert_eq!(end.code(), 69, "{end:?}");
}

/// What the runbook tells people to type is understood.
#[test]
fn the_commands_of_the_runbook_are_ones_of_ours() {
    let bench = Bench::new();
    let engine = format!("sqlite:{}", bench.file("locks.sqlite").display());
    let page = include_str!("../../../../docs/runbook.md");
    let lines: Vec<_> = page.lines().filter_map(|line| line.trim_start().strip_prefix("tenure ")).collect();
    assert!(lines.len() >= 3, "{lines:?}");
    for line in lines {
        let words: Vec<_> = line.split_whitespace().collect();
        let mut command = tenure(&words);
        command.env("TENURE_URL", &engine);
        let end = end_of(command);
        assert_ne!(end.code(), 64, "{line}: {end:?}");
    }
}
