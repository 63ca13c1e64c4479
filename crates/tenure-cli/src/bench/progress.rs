//! What is being measured, on the last line of a terminal.

use std::io::{IsTerminal, Write};
use std::time::Instant;

/// Says nothing where standard error is no terminal.
pub(super) struct Progress {
    is_shown: bool,
    done: usize,
    total: usize,
    began: Instant,
}

impl Progress {
    pub(super) fn of(total: usize) -> Progress {
        Progress { is_shown: std::io::stderr().is_terminal(), done: 0, total, began: Instant::now() }
    }

    /// A step begins.
    pub(super) fn step(&mut self, what: &str) {
        self.done += 1;
        let (done, total, seconds) = (self.done, self.total, self.began.elapsed().as_secs());
        self.write(&format!("\r\x1b[2K[{done}/{total}] {seconds:>3} s  {what} "));
    }

    /// Clears the line.
    pub(super) fn end(&self) {
        self.write("\r\x1b[2K");
    }

    fn write(&self, text: &str) {
        if self.is_shown {
            let mut terminal = std::io::stderr().lock();
            let _ = terminal.write_all(text.as_bytes());
            let _ = terminal.flush();
        }
    }
}
