//! The terminal, if there is one: the command has it while it runs.

use std::fs::{File, OpenOptions};
use std::io::IsTerminal;
use std::os::unix::fs::OpenOptionsExt;

use nix::sys::signal::{SigSet, Signal};
use rustix::fs::OFlags;
use rustix::process::{Pid, getpgrp};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

/// The terminal that controls this process.
pub(crate) struct Terminal {
    file: File,
    /// How it was set before somebody else had it.
    settings: Option<Termios>,
    lent: bool,
}

impl Terminal {
    /// `None` without one.
    pub(crate) fn open() -> Option<Terminal> {
        let flags = i32::try_from(OFlags::NOCTTY.bits()).unwrap_or(0);
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/tty").ok()?;
        Some(Terminal { file, settings: None, lent: false })
    }

    /// Whether what is typed comes to this process's group.
    fn is_ours(&self) -> bool {
        tcgetpgrp(&self.file).is_ok_and(|group| group == getpgrp())
    }

    /// Whether the command has been given it.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent
    }

    /// Gives it to the command's group, if it is ours to give. True if the command may use it now.
    pub(crate) fn lend(&mut self, to: Pid) -> bool {
        if self.is_ours() {
            if self.settings.is_none() {
                self.settings = tcgetattr(&self.file).ok();
            }
            self.lent |= self.hand(to);
        }
        tcgetpgrp(&self.file).is_ok_and(|group| group == to)
    }

    /// Takes it back from a command that has ended; with its settings, if the command had no time for that.
    pub(crate) fn take_back(&mut self, restore: bool) {
        if !std::mem::take(&mut self.lent) || self.is_ours() {
            return;
        }
        self.hand(getpgrp());
        if restore && let Some(settings) = &self.settings {
            let _ = tcsetattr(&self.file, OptionalActions::Drain, settings);
        }
    }

    /// Who is not in front is stopped when it changes that, unless it blocks the signal.
    fn hand(&self, to: Pid) -> bool {
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGTTOU);
        let blocked = mask.thread_block().is_ok();
        let done = blocked && tcsetpgrp(&self.file, to).is_ok();
        let _ = mask.thread_unblock();
        done
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back(true);
    }
}

/// Whether standard input is a terminal.
pub(crate) fn is_input() -> bool {
    std::io::stdin().is_terminal()
}
