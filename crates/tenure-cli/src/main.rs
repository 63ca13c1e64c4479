//! The command `tenure`: runs a command while it holds a lock in a distributed system.

use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::exit::Exit;

mod args;
mod bench;
mod child;
mod duration;
mod engine_url;
mod exit;
mod run;
mod say;
mod signals;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { ExitCode::SUCCESS };
        }
    };
    // A bug must not end with 101, which could be the child's own code.
    let exit = panic::catch_unwind(AssertUnwindSafe(|| carry_out(cli)));
    exit.unwrap_or(Exit::Bug).into()
}

fn carry_out(cli: Cli) -> Exit {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return say::because(Exit::Bug, &format!("the runtime cannot be started: {error}")),
    };
    match cli.command {
        Command::Run(run) => runtime.block_on(run::run(run)),
        Command::Bench(bench) => bench::run(bench),
    }
}
