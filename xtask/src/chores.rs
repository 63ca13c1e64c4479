//! Chores that are other programs, one after another, each with the time it took.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

const FEATURE_SETS: [&[&str]; 4] =
    [&["--no-default-features"], &["--features", "redis"], &["--features", "sqlite"], &["--all-features"]];

const SWEEPS: usize = 20;

/// What CI runs is one script, so that both are the same.
pub(crate) fn ci(root: &Path) -> Result<(), String> {
    steps(root, &[Step::new(".ci/run", &[])])
}

/// Everything CI runs besides the tests.
pub(crate) fn checks(root: &Path) -> Result<(), String> {
    let mut list = vec![
        Step::cargo(&["fmt", "--all", "--check"]),
        Step::cargo(&["xtask", "tidy"]),
        Step::cargo(&["xtask", "licences"]),
        Step::cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--locked",
            "--",
            "-Dwarnings",
        ]),
    ];
    for features in FEATURE_SETS {
        let mut words = vec!["clippy", "--package", "tenure", "--lib", "--locked"];
        words.extend(features);
        words.extend(["--", "-Dwarnings"]);
        list.push(Step::cargo(&words));
    }
    let documentation = ["doc", "--workspace", "--no-deps", "--all-features", "--locked"];
    list.push(Step::cargo(&documentation).with("RUSTDOCFLAGS", "-Dwarnings"));
    steps(root, &list)
}

/// The tests with a hundred times the seeds, and the cancellation sweep again and again: each run of
/// it drops requests at other instants.
pub(crate) fn nightly(root: &Path) -> Result<(), String> {
    let seeds = std::env::var("TENURE_SIM_SEEDS").unwrap_or_else(|_| "25000".to_owned());
    let mut list = vec![Step::new("scripts/test.sh", &[]).with("TENURE_SIM_SEEDS", &seeds)];
    let sweep = ["--package", "tenure-testkit", "--test", "suite", "--", "cancellation_sweep"];
    list.extend((0..SWEEPS).map(|_| Step::new("scripts/test.sh", &sweep)));
    steps(root, &list)
}

struct Step {
    program: String,
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
}

impl Step {
    fn new(program: &str, arguments: &[&str]) -> Step {
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        Step { program: program.to_owned(), arguments, variables: Vec::new() }
    }

    fn cargo(arguments: &[&str]) -> Step {
        Step::new("cargo", arguments)
    }

    fn with(mut self, name: &'static str, value: &str) -> Step {
        self.variables.push((name, value.to_owned()));
        self
    }

    fn line(&self) -> String {
        let variables = self.variables.iter().map(|(name, value)| format!("{name}={value} "));
        let arguments = self.arguments.iter().map(|word| format!(" {word}"));
        format!("{}{}{}", variables.collect::<String>(), self.program, arguments.collect::<String>())
    }
}

/// Runs them all, even after a failure, so that one run tells everything.
fn steps(root: &Path, list: &[Step]) -> Result<(), String> {
    let mut failed = Vec::new();
    let mut table = String::new();
    for step in list {
        eprintln!("==> {}", step.line());
        let program =
            if step.program.contains('/') { root.join(&step.program) } else { (&step.program).into() };
        let begun = Instant::now();
        let status = Command::new(program)
            .args(&step.arguments)
            .envs(step.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(root)
            .status();
        let took = begun.elapsed().as_secs_f64();
        let passed = status.as_ref().is_ok_and(std::process::ExitStatus::success);
        table.push_str(&format!(
            "{} {took:7.1} s  {}\n",
            if passed { "ok    " } else { "FAILED" },
            step.line()
        ));
        match status {
            Ok(status) if !status.success() => failed.push(format!("{}: {status}", step.line())),
            Err(error) => failed.push(format!("{}: {error}", step.line())),
            Ok(_) => {}
        }
    }
    eprint!("\n{table}");
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}
