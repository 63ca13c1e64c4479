//! The signals that a person, a supervisor or a terminal sends to a program.

use std::io;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind};

/// Those that end a program, caught from now on; others once there is somebody to pass them on to.
///
/// One that was ignored when we were started (`nohup`, a job in the background of a script) stays
/// ignored: the child inherits that, and it would not survive our catching it.
pub(crate) struct Signals {
    caught: Vec<(Signal, unix::Signal)>,
    /// What was ignored when we were started, one bit each.
    ignored: u64,
    // Kept only so that a child's end is not discarded where our caller ignores SIGCHLD.
    _children: unix::Signal,
}

impl Signals {
    pub(crate) fn catch() -> io::Result<Signals> {
        let ignored = ignored_at_start();
        let children = unix::signal(SignalKind::child())?;
        let mut signals = Signals { caught: Vec::new(), ignored, _children: children };
        let ends = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::USR1, Signal::USR2];
        signals.add(&ends)?;
        Ok(signals)
    }

    /// From now on also those that end nothing: a window's new size, and stopping and going on.
    pub(crate) fn catch_more(&mut self) -> io::Result<()> {
        self.add(&[Signal::WINCH, Signal::TSTP, Signal::CONT])
    }

    fn add(&mut self, signals: &[Signal]) -> io::Result<()> {
        for signal in signals {
            if self.ignored & (1 << (signal.as_raw() - 1)) == 0 {
                self.caught.push((*signal, unix::signal(SignalKind::from_raw(signal.as_raw()))?));
            }
        }
        Ok(())
    }

    /// The next one. Cancelling loses none.
    pub(crate) async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            for (signal, stream) in &mut self.caught {
                if stream.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*signal);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// The set of ignored signals, one bit each. Where the system does not say, none.
fn ignored_at_start() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
