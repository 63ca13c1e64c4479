//! The examples of `tenure hold` in other languages, run as a reader would. One that is not installed here is
//! shown as ignored with the reason; with `TENURE_REQUIRE_ALL=1`, as on CI, it fails.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;

use libtest_mimic::{Arguments, Trial};
use rustix::process::Signal;
use tempfile::TempDir;

#[allow(dead_code)] // The other tests use more of it.
#[path = "it/support.rs"]
mod support;

use support::{Bench, Running, end_of, tenure, until};

/// A language: its name, the program that runs or builds its example, and how the example is made a command.
struct Language {
    name: &'static str,
    program: &'static str,
    command: fn(&Path) -> Command,
}

const LANGUAGES: [Language; 3] = [
    Language { name: "bash", program: "bash", command: |folder| script("bash", folder, "hold.sh") },
    Language { name: "python", program: "python3", command: |folder| script("python3", folder, "hold.py") },
    Language { name: "go", program: "go", command: |folder| Command::new(built(folder)) },
];

type Case = (&'static str, fn(&Language));

const CASES: [Case; 4] = [
    ("works_and_releases", works_and_releases),
    ("stops_when_the_lock_is_lost", stops_when_the_lock_is_lost),
    ("releases_when_it_is_killed", releases_when_it_is_killed),
    ("fails_without_an_engine", fails_without_an_engine),
];

fn main() -> ExitCode {
    let require_all = std::env::var_os("TENURE_REQUIRE_ALL").is_some_and(|value| value != "0");
    let mut trials = Vec::new();
    for language in &LANGUAGES {
        let missing = missing(language.program);
        for (name, case) in CASES {
            let reason = missing.clone();
            let run = move || match reason {
                Some(reason) => Err(reason.into()),
                None => {
                    case(language);
                    Ok(())
                }
            };
            let trial = Trial::test(format!("{}::{name}", language.name), run);
            trials.push(match &missing {
                Some(reason) => {
                    trial.with_kind(format!("cannot run: {reason}")).with_ignored_flag(!require_all)
                }
                None => trial,
            });
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn missing(program: &str) -> Option<String> {
    let asked = Command::new("sh").args(["-c", "command -v -- \"$0\"", program]).output();
    let found = asked.is_ok_and(|output| output.status.success());
    (!found).then(|| format!("{program} is not installed"))
}

fn script(shell: &str, folder: &Path, name: &str) -> Command {
    let mut command = Command::new(shell);
    command.arg(folder.join(name));
    command
}

/// The Go example as a program, built once.
fn built(folder: &Path) -> PathBuf {
    static BUILT: OnceLock<TempDir> = OnceLock::new();
    let place = BUILT.get_or_init(|| {
        let place = TempDir::new().unwrap();
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(place.path().join("hold")).arg("hold.go").current_dir(folder);
        // Nothing is fetched: it needs the standard library only.
        go.env("GOFLAGS", "-mod=mod").env("GOPROXY", "off").env("GOCACHE", place.path().join("cache"));
        let output = go.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        place
    });
    place.path().join("hold")
}

/// The example, which finds this `tenure` and this engine, as `example KEY SECONDS`.
fn example(language: &Language, url: &str, key: &str, seconds: &str) -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/hold");
    let mut command = (language.command)(&folder);
    let tenure = Path::new(env!("CARGO_BIN_EXE_tenure")).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(tenure.to_owned()).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(path).unwrap());
    command.args([key, seconds]).env("TENURE_URL", url).env_remove("TENURE_URL_FILE");
    command
}

fn works_and_releases(language: &Language) {
    let bench = Bench::new();
    let mut tokens = Vec::new();
    for _ in 0..2 {
        let end = end_of(example(language, &bench.url(), "jobs/1", "1"));
        assert_eq!((end.code(), end.err.as_str()), (0, ""), "{end:?}");
        let lines: Vec<&str> = end.out.lines().collect();
        let [granted, "released"] = lines[..] else { panic!("{end:?}") };
        tokens.push(granted.strip_prefix("granted with token ").unwrap().parse::<u64>().unwrap());
        assert_eq!(bench.traces(), [""; 0]);
    }
    assert!(tokens[0] < tokens[1], "{tokens:?}");
}

fn stops_when_the_lock_is_lost(language: &Language) {
    let bench = Bench::new();
    let running = Running::start(example(language, &bench.url(), "k", "60"));
    bench.until_held("k", true);
    let end = end_of(tenure(&["release", "--force", "--engine", &bench.url(), "k"]));
    assert_eq!(end.code(), 0, "{end:?}");
    let end = running.end();
    assert_eq!(end.code(), 1, "{end:?}");
    assert!(end.err.contains("lost"), "{end:?}");
}

fn releases_when_it_is_killed(language: &Language) {
    let bench = Bench::new();
    let running = Running::start(example(language, &bench.url(), "k", "60"));
    bench.until_held("k", true);
    running.signal(Signal::KILL);
    bench.until_held("k", false);
    until("nothing is left", || bench.traces().is_empty());
}

fn fails_without_an_engine(language: &Language) {
    let end = end_of(example(language, "nosuch:", "k", "60"));
    assert_eq!(end.code(), 1, "{end:?}");
    assert!(end.err.contains("not acquired") && end.err.contains("no engine is known"), "{end:?}");
}
