//! Rules of the source tree that no compiler checks. Each is a function that answers complaints.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::source;

mod engines;

const MOST_LINES_OF_A_FILE: usize = 500;
const MOST_LINES_OF_A_FUNCTION: usize = 70;

/// Time and chance come from `Background` and `Moment`, so that the simulator rules over both.
const BANNED: [&str; 8] = [
    "Instant::now",
    "SystemTime::now",
    "UNIX_EPOCH",
    "thread_rng",
    "rand::rng()",
    "rand::random",
    "from_os_rng",
    "OsRng",
];

/// Files that may use some of them, and why.
const WHERE_ALLOWED: [(&str, &[&str], &str); 5] = [
    (
        "crates/tenure/src/background.rs",
        &["Instant::now", "from_os_rng"],
        "it is what the others get time and chance from",
    ),
    (
        "crates/tenure/src/engine/redis/actor.rs",
        &["Instant::now"],
        "time limits of requests, by the clock of the runtime that also sets the timers",
    ),
    ("crates/tenure/src/engine/redis/lane.rs", &["Instant::now"], "as in actor.rs"),
    (
        "crates/tenure/src/engine/redis/mod.rs",
        &["Instant::now"],
        "the time limit of connecting, by the same clock",
    ),
    (
        "crates/tenure/src/engine/redis/value.rs",
        &["SystemTime::now", "UNIX_EPOCH"],
        "the value says to people when its holder entered; nothing is decided by it",
    ),
];

/// Everything that is wrong with the tree.
pub(crate) fn complaints(root: &Path) -> Result<Vec<String>, String> {
    let files = tracked(root)?;
    let mut complaints = Vec::new();
    for file in &files {
        let Ok(text) = std::fs::read_to_string(root.join(file)) else { continue };
        let name = file.to_string_lossy();
        complaints.extend(machine_paths(&name, &text));
        if name.ends_with(".rs") {
            complaints.extend(sizes(&name, &text));
            complaints.extend(bans(&name, &text));
            complaints.extend(skipped_tests(&name, &text));
        }
        if name.ends_with(".md") {
            complaints.extend(dead_links(root, file, &text));
        }
        if name.ends_with("Cargo.toml") {
            complaints.extend(lints(&name, &text));
        }
    }
    complaints.extend(engines::complaints(root)?);
    Ok(complaints)
}

/// What git knows, and what it would know after `git add`; without files that are deleted.
fn tracked(root: &Path) -> Result<Vec<PathBuf>, String> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output();
    let output = output.map_err(|error| format!("git ls-files: {error}"))?;
    if !output.status.success() {
        return Err(format!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    let files = names.split('\0').filter(|name| !name.is_empty()).map(PathBuf::from);
    Ok(files.filter(|file| root.join(file).is_file()).collect())
}

fn sizes(name: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let lines = text.lines().count();
    if lines > MOST_LINES_OF_A_FILE {
        complaints.push(format!("{name}: {lines} lines, more than {MOST_LINES_OF_A_FILE}"));
    }
    for function in source::functions(&source::bare(text)) {
        if function.length > MOST_LINES_OF_A_FUNCTION {
            complaints.push(format!(
                "{name}:{}: fn {} has {} lines, more than {MOST_LINES_OF_A_FUNCTION}",
                function.line, function.name, function.length
            ));
        }
    }
    complaints
}

fn bans(name: &str, text: &str) -> Vec<String> {
    let is_test = name.ends_with("/tests.rs") || name.contains("/tests/");
    if !name.starts_with("crates/tenure/src/") || is_test {
        return Vec::new();
    }
    let allowed = |word| WHERE_ALLOWED.iter().any(|(file, words, _)| *file == name && words.contains(&word));
    let bare = source::bare(text);
    // Tests stand at the end of a file; their own clocks harm nobody.
    let code = bare.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let mut complaints = Vec::new();
    for (at, line) in code.lines().enumerate() {
        for word in BANNED.into_iter().filter(|word| line.contains(word) && !allowed(*word)) {
            complaints.push(format!(
                "{name}:{}: {word} is banned here; time and chance come from Background",
                at + 1
            ));
        }
    }
    complaints
}

fn skipped_tests(name: &str, text: &str) -> Vec<String> {
    let bare = source::bare(text);
    let lines = bare.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("#[ignore"));
    lines.map(|(at, _)| format!("{name}:{}: a test must not be ignored", at + 1)).collect()
}

/// Paths that exist on one machine only.
fn machine_paths(name: &str, text: &str) -> Vec<String> {
    let homes = ["home", "root", "Users", "work"].map(|home| format!("/{home}/"));
    let told = |line: &str| {
        homes.iter().any(|home| {
            line.match_indices(home.as_str()).any(|(at, _)| {
                let before = line[..at].chars().next_back();
                // After a letter, a dot or a slash it is a part of some other path or address.
                before.is_none_or(|c| !c.is_alphanumeric() && !"./~}_-".contains(c))
            })
        })
    };
    let lines = text.lines().enumerate().filter(|(_, line)| told(line));
    lines.map(|(at, _)| format!("{name}:{}: a path of one machine", at + 1)).collect()
}

fn dead_links(root: &Path, file: &Path, text: &str) -> Vec<String> {
    let folder = root.join(file).parent().map(Path::to_owned).unwrap_or_default();
    let targets = text.match_indices("](").filter_map(|(at, _)| text[at + 2..].split(')').next());
    let paths = targets.filter(|target| !target.contains(':') && !target.starts_with('#'));
    paths
        .map(|target| target.split('#').next().unwrap_or_default())
        .filter(|path| !folder.join(path).exists())
        .map(|path| format!("{}: the link to {path} leads nowhere", file.display()))
        .collect()
}

/// Every crate follows the lints of the workspace, `forbid(unsafe_code)` among them.
fn lints(name: &str, text: &str) -> Option<String> {
    let is_crate = text.contains("[package]");
    (is_crate && !text.contains("[lints]\nworkspace = true"))
        .then(|| format!("{name}: lacks [lints] workspace = true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_tree_is_tidy() {
        assert_eq!(complaints(&crate::root()), Ok(Vec::new()));
    }

    #[test]
    fn what_is_too_long_is_named() {
        let long = format!("fn f() {{\n{}}}\n", "    x();\n".repeat(70));
        assert_eq!(sizes("a.rs", &long), ["a.rs:1: fn f has 72 lines, more than 70"]);
        assert_eq!(sizes("a.rs", &"//\n".repeat(501)), ["a.rs: 501 lines, more than 500"]);
    }

    #[test]
    fn clocks_and_chance_are_banned_in_the_library_outside_tests() {
        let text = "fn f() { Instant::now(); }\n// Instant::now\n#[cfg(test)]\nmod tests { Instant::now }\n";
        let found = bans("crates/tenure/src/line.rs", text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("crates/tenure/src/line.rs:1: Instant::now"));
        assert!(bans("crates/tenure/src/background.rs", text).is_empty());
        assert_eq!(bans("crates/tenure/src/background.rs", "fn f() { SystemTime::now(); }\n").len(), 1);
        assert!(bans("crates/tenure/src/engine/redis/tests/faults.rs", text).is_empty());
        let elsewhere = "#[cfg(test)]\nmod tests;\nfn f() { thread_rng(); }\n";
        assert_eq!(bans("crates/tenure/src/lib.rs", elsewhere).len(), 1);
        assert!(bans("crates/tenure-testkit/src/lib.rs", text).is_empty());
    }

    #[test]
    fn other_rules_complain_too() {
        assert_eq!(skipped_tests("a.rs", "    #[ignore = \"slow\"]\n").len(), 1);
        assert_eq!(machine_paths("a.md", &format!("see /{}/x", "home")).len(), 1);
        assert!(machine_paths("a.md", "https://host.example/work/x and $HOME/work/x").is_empty());
        assert!(lints("Cargo.toml", "[package]\nname = \"a\"\n").is_some());
        let links = "[a](Cargo.toml) [b](none.md) [c](https://x.example/) [d](#e) [f](README.md#g)";
        let dead = dead_links(&crate::root(), Path::new("README.md"), links);
        assert_eq!(dead, ["README.md: the link to none.md leads nowhere"]);
    }
}
