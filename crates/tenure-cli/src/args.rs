//! What can be said on the command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::bench::BenchArgs;
use crate::{duration, exit};

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
    /// The lock is released when the command has ended. The command finds TENURE_KEY and TENURE_TOKEN in
    /// its environment. If the lock is lost, the command is ended.
    #[command(after_help = exit::HELP)]
    Run(Run),

    /// Measure what locks cost on an engine, beside the raw limits of its server.
    ///
    /// It uses names of its own, tenure-bench:..., and removes them at the end. A server that others use
    /// is loaded to its limit meanwhile.
    Bench(BenchArgs),
}

/// `tenure run`.
#[derive(Args)]
pub(crate) struct Run {
    /// The engine's URL, such as redis://127.0.0.1:6379.
    ///
    /// redis: and rediss: are one Redis server; memory: excludes nobody and is for trying.
    ///
    /// Without it TENURE_URL counts, then the first line of the file named by TENURE_URL_FILE. A
    /// password belongs in that file: others on the machine can read arguments.
    #[arg(long, value_name = "URL")]
    pub(crate) engine: Option<String>,

    /// How long the lock lasts unless renewed; it is renewed as long as the command runs. Unless
    /// said: the ttl of the URL, or 30s.
    #[arg(long, value_name = "DURATION", value_parser = duration::above_zero, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,

    /// Wait at most so long for the lock; 0 tries once. Waits for ever unless said.
    #[arg(long, value_name = "DURATION", conflicts_with = "no_wait", value_parser = duration::any,
          allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,

    /// Try once and do not wait.
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// Say on standard error which engine is used and when the lock is granted and released.
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// The name of the lock: 1 to 1,024 bytes of UTF-8.
    #[arg(value_name = "KEY")]
    pub(crate) key: String,

    /// The command and its arguments, after `--`.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[cfg(test)]
mod tests {
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
