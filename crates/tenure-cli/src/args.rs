//! What can be said on the command line.

use clap::{Parser, Subcommand};

use crate::bench::BenchArgs;
use crate::engines::{self, Engines};
use crate::exit;
use crate::hold::{self, Hold};
use crate::manual::{self, Completions, Man};
use crate::release::{self, Release};
use crate::run::{self, Run};
use crate::who::{self, Who};

/// Holds a lock in a distributed system while a command runs.
#[derive(Parser)]
#[command(name = "tenure", version, after_help = exit::HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock.
    ///
    /// The lock is released when nothing of the command's process group is left. The command finds TENURE_KEY,
    /// TENURE_TOKEN, TENURE_OWNER and TENURE_ENGINE in its environment. If `tenure` is
    /// killed or stopped, or cannot renew the lock, the command is ended before the lock can be somebody
    /// else's; if the lock is taken away (`tenure release --force`), as soon as that is noticed.
    #[command(after_help = format!("{}\n\n{}", run::EXAMPLES, exit::HELP))]
    Run(Run),

    /// Measure what locks cost on an engine, beside the raw limits of its server.
    ///
    /// It uses names of its own, tenure-bench:..., and removes them at the end. A server that others use
    /// is loaded to its limit meanwhile.
    Bench(BenchArgs),

    /// Hold a lock for a program that reads lines of JSON, until standard input ends.
    #[command(after_help = hold::HELP)]
    Hold(Hold),

    /// Show who holds what.
    #[command(after_help = who::HELP)]
    Who(Who),

    /// Take a lock from its holder, who may still be at work.
    #[command(after_help = release::HELP)]
    Release(Release),

    /// List the engines of this build and what each promises.
    #[command(after_help = engines::HELP)]
    Engines(Engines),

    /// Write the completions of a shell to standard output.
    #[command(after_help = manual::HELP)]
    Completions(Completions),

    /// Write the manual pages.
    #[command(hide = true)]
    Man(Man),
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn options_of_the_command_are_its_own() {
        let line = ["tenure", "run", "-v", "--ttl", "5s", "k", "--", "sh", "-c", "--wait", "-v"];
        let Command::Run(run) = Cli::try_parse_from(line).unwrap().command else { panic!("no run") };
        assert_eq!(
            (run.key.as_str(), run.ttl, run.wait, run.verbose),
            ("k", Some(Duration::from_secs(5)), None, true)
        );
        assert_eq!(run.command, ["sh", "-c", "--wait", "-v"]);
    }

    #[test]
    fn wait_and_no_wait_exclude_each_other() {
        let line = ["tenure", "run", "--wait", "5s", "--no-wait", "k", "--", "true"];
        assert!(Cli::try_parse_from(line).is_err());
        let negative = ["tenure", "run", "--ttl", "-5s", "k", "--", "true"];
        let error = Cli::try_parse_from(negative).err().unwrap().to_string();
        assert!(error.contains("must not be negative"), "{error}");
    }
}
