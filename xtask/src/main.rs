//! Chores of this repository: `cargo xtask CHORE`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod chores;
mod dependencies;
mod source;
mod spdx;
mod tidy;

const HELP: &str = "\
usage: cargo xtask CHORE

  ci        everything CI runs: the tests, then the checks (.ci/run)
  checks    formatting, lints, feature combinations, documentation, tidy, licences
  nightly   the tests with a hundred times the seeds, and the cancellation sweep 20 times
  tidy      the rules of the source tree that no compiler checks
  licences  the licences of all dependencies, and the Rust version they need
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = root();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["ci"] => chores::ci(&root),
        ["checks"] => chores::checks(&root),
        ["nightly"] => chores::nightly(&root),
        ["tidy"] => told(tidy::complaints(&root)),
        ["licences"] => told(dependencies::complaints(&root)),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => {
            eprint!("{HELP}");
            return ExitCode::from(64);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("{what}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the workspace.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// No complaint is success; else each stands on its own line.
fn told(complaints: Result<Vec<String>, String>) -> Result<(), String> {
    match complaints? {
        none if none.is_empty() => Ok(()),
        some => Err(format!("{}\n{} complaints", some.join("\n"), some.len())),
    }
}
