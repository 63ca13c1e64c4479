//! The command under its guard, as `tenure` sees it.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{self, Pid, Signal, WaitId, WaitIdOptions};
use tenure::Moment;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::guard::family::{Family, reaped};
use crate::guard::talk::{Order, Report, Terms};
use crate::guard::{WORD, arm};

/// The program that runs now, also when its file was replaced meanwhile.
const MYSELF: &str = "/proc/self/exe";
/// How long a killed process may take to be gone before we say so and leave.
const KILLED: Duration = Duration::from_secs(1);

/// A guard and its command. Dropping it before the end is told makes the guard end the command.
pub(crate) struct Guarded {
    guard: Child,
    reports: Lines<BufReader<OwnedReadHalf>>,
    orders: OwnedWriteHalf,
    family: Family,
}

impl Guarded {
    /// Starts the guard, which starts the command. `life` is what keeps the lock as long as anybody has it
    /// open.
    pub(crate) fn start(
        line: &[OsString],
        variables: &[(&str, String)],
        terms: Terms,
        life: Option<BorrowedFd<'_>>,
    ) -> io::Result<Guarded> {
        // Should the guard die, what it was the parent of comes to us.
        process::set_child_subreaper(Some(process::getpid()))?;
        let family = Family::new();
        let (ours, its) = Socket::pair()?;
        let mut command = Command::new(MYSELF);
        command.arg0(env::args_os().next().unwrap_or_else(|| "tenure".into()));
        command.arg(WORD).arg("--").args(line).envs(variables.iter().cloned());
        // In a group of its own, so that what is typed does not end it; in this session, because a group
        // whose parent is in another one cannot wait for the terminal: it is refused.
        let guard = command.process_group(0).stdin(Stdio::from(OwnedFd::from(its))).spawn()?;
        let input = io::stdin();
        let files: Vec<_> = std::iter::once(input.as_fd()).chain(life).collect();
        arm(&ours, terms, &files)?;
        ours.set_nonblocking(true)?;
        let (reports, orders) = UnixStream::from_std(ours)?.into_split();
        Ok(Guarded { guard, reports: BufReader::new(reports).lines(), orders, family })
    }

    /// What the guard tells next. `None`: it is dead. Cancelling loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Report> {
        loop {
            let line = self.reports.next_line().await.ok()??;
            let report = line.parse().ok();
            if let Some(Report::Started(group)) = report
                && let Some(leader) = Pid::from_raw(group)
            {
                self.family.set_leader(leader);
            }
            if report.is_some() {
                return report;
            }
        }
    }

    /// The command's group, once it has been started.
    pub(crate) fn group(&self) -> Option<Pid> {
        self.family.leader()
    }

    /// Tells the guard. An order is short and the guard reads at once; if it does not, it stands still, and
    /// that shows in time ([`take_over`](Guarded::take_over)).
    pub(crate) fn order(&self, order: Order) {
        let _ = self.orders.try_write(format!("{order}\n").as_bytes());
    }

    /// A guard that somebody stopped would see neither the command's end nor the clock: it goes on.
    pub(crate) fn keep_going(&self) {
        let Some(guard) = i32::try_from(self.guard.id()).ok().and_then(Pid::from_raw) else { return };
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        if matches!(process::waitid(WaitId::Pid(guard), options), Ok(Some(_))) {
            let _ = process::kill_process(guard, Signal::CONT);
        }
    }

    /// Waits for the guard's own end, which comes right after its last words.
    pub(crate) fn finish(mut self) {
        let _ = self.guard.wait();
    }

    /// The guard is dead, or stands still: ends it and everything that it had to see to, at once. False if
    /// something is left all the same.
    pub(crate) fn take_over(mut self) -> bool {
        let _ = self.guard.kill();
        let _ = self.guard.wait();
        let give_up = Moment::now() + KILLED;
        loop {
            self.family.kill(true);
            // The leader has come to us like the others.
            if self.family.is_alone(true) && self.family.leader().is_none_or(reaped) {
                return true;
            }
            if Moment::now() >= give_up {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
