//! Completions and manual pages, made of the same definitions as `--help`.

use std::io;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::Exit;
use crate::{say, streams};

/// Examples, as `--help` shows them.
pub(crate) const HELP: &str = "\
Examples:
  tenure completions bash > ~/.local/share/bash-completion/completions/tenure
  tenure completions zsh > ~/.zfunc/_tenure
  tenure completions fish > ~/.config/fish/completions/tenure.fish";

/// `tenure completions`.
#[derive(Args)]
pub(crate) struct Completions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// `tenure man`.
#[derive(Args)]
pub(crate) struct Man {
    /// Write the page of every command into this folder. Unless said, tenure(1) goes to standard output.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Writes completions, and says how `tenure` should end.
pub(crate) fn completions(args: &Completions) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "tenure", &mut script);
    written(streams::print(String::from_utf8_lossy(&script).trim_end()))
}

/// Writes manual pages, and says how `tenure` should end.
pub(crate) fn man(args: &Man) -> Exit {
    let Some(folder) = &args.dir else {
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(Cli::command()).render(&mut page);
        return written(rendered.and_then(|()| streams::print(String::from_utf8_lossy(&page).trim_end())));
    };
    match clap_mangen::generate_to(Cli::command(), folder) {
        Ok(()) => Exit::Own(0),
        Err(error) => {
            let what = format!("the pages cannot be written into {}: {error}", folder.display());
            say::because(Exit::CouldNotRun, &what)
        }
    }
}

fn written(result: io::Result<()>) -> Exit {
    match result {
        Ok(()) => Exit::Own(0),
        Err(error) => streams::failed(&error),
    }
}
