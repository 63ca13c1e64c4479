//! The command `tenure`: runs a command while it holds a lock in a distributed system.

use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::exit::Exit;

mod args;
mod bench;
mod columns;
mod duration;
mod engine_url;
mod engines;
mod exit;
mod guard;
mod hold;
mod host;
mod json;
mod manual;
mod release;
mod run;
mod say;
mod session;
mod signals;
mod streams;
mod who;

fn main() -> ExitCode {
    // The guard is this program, too. It has neither runtime nor threads.
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == guard::WORD) {
        return guard::main(&words.skip(1).collect::<Vec<_>>()).into();
    }
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
        Command::Hold(hold) => runtime.block_on(hold::hold(hold)),
        Command::Who(who) => runtime.block_on(who::who(who)),
        Command::Release(release) => runtime.block_on(release::release(release)),
        Command::Engines(engines) => engines::engines(&engines),
        Command::Completions(completions) => manual::completions(&completions),
        Command::Man(man) => manual::man(&man),
        Command::Bench(bench) => bench::run(bench),
    }
}
