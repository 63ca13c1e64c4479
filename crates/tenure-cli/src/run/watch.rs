//! From the start of the command until nothing is left of it.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tenure::{Lease, LossCause, Moment};
use tokio::time;

use super::guarded::Guarded;
use super::terminal::{self, Terminal};
use super::{Run, shown, why};
use crate::guard::family::shares_its_group;
use crate::guard::talk::{OnLost, Order, Report, Terms};
use crate::say;
use crate::signals::Signals;

/// How long a guard may take for its work before we do it ourselves.
const OVERDUE: Duration = Duration::from_secs(1);

/// Why a command was ended, or should have been.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Lost(LossCause),
    /// Validity was about to end; the lease may have been renewed after all.
    Late,
    MaxHold,
}

/// What became of the command. Nothing of it is left, unless it says so.
pub(crate) enum Outcome {
    NotStarted(io::Error),
    Ended(ExitStatus),
    /// The lock was lost or held for too long.
    Forced(Why),
    /// The guard was dead, and the command was ended by us.
    Unguarded,
    /// Killed, yet not gone.
    StillThere,
}

pub(crate) struct Watch<'a> {
    args: &'a Run,
    lease: &'a Lease,
    terms: Terms,
    granted: Moment,
    guarded: Guarded,
    terminal: Option<Terminal>,
    /// It was stopped because it wanted the terminal while that was not ours.
    wants_terminal: bool,
    status: Option<ExitStatus>,
    why: Option<Why>,
    /// When the guard should have finished.
    overdue: Option<Moment>,
}

impl<'a> Watch<'a> {
    pub(crate) fn new(
        args: &'a Run,
        lease: &'a Lease,
        terms: Terms,
        granted: Moment,
        guarded: Guarded,
    ) -> Watch<'a> {
        Watch {
            args,
            lease,
            terms,
            granted,
            guarded,
            terminal: Terminal::open(),
            wants_terminal: false,
            status: None,
            why: None,
            overdue: None,
        }
    }

    /// Tells the guard how long the lock is ours, and what else happens, until nothing is left.
    pub(crate) async fn until_gone(mut self, signals: &mut Signals) -> Outcome {
        if let Err(error) = signals.catch_more() {
            say::line(&format!("some signals cannot be passed on: {error}"));
        }
        loop {
            let pause = self.pause();
            tokio::select! {
                biased;
                report = self.guarded.next() => match report {
                    Some(Report::Gone) => return self.gone(),
                    Some(Report::Failed(errno)) => {
                        self.guarded.finish();
                        return Outcome::NotStarted(io::Error::from_raw_os_error(errno));
                    }
                    Some(report) => self.hear(report),
                    None => return self.take_over(),
                },
                cause = self.lease.lost(), if self.why.is_none() => self.lost(cause),
                signal = signals.next() => self.pass_on(signal),
                () = time::sleep(pause) => {}
            }
            self.look_at_the_clock();
            if self.overdue.is_some_and(|overdue| Moment::now() >= overdue) {
                return self.take_over();
            }
        }
    }

    /// How long nothing needs to be looked at.
    fn pause(&self) -> Duration {
        let now = Moment::now();
        let tick = (self.terms.term / 16).clamp(Duration::from_millis(5), Duration::from_secs(1));
        let held = self.args.max_hold.filter(|_| self.why.is_none()).map(|most| self.granted + most);
        [held, self.overdue].into_iter().flatten().fold(tick, |pause, moment| pause.min(moment.since(now)))
    }

    /// When a guard that should have finished has not done so in time.
    fn latest(&self) -> Moment {
        self.lease.valid_until() - self.terms.term / 100
    }

    fn look_at_the_clock(&mut self) {
        self.guarded.keep_going();
        let valid_until = self.lease.valid_until();
        if valid_until > self.terms.valid_until {
            self.terms.valid_until = valid_until;
            self.guarded.order(Order::Valid(valid_until));
        }
        let Some(most) = self.args.max_hold else { return };
        if self.why.is_none() && self.status.is_none() && Moment::now() >= self.granted + most {
            self.why = Some(Why::MaxHold);
            let patience = Moment::now() + self.terms.grace + OVERDUE;
            self.overdue = Some(patience.min(self.latest()));
            self.guarded.order(Order::End);
            let key = shown(&self.args.key);
            say::line(&format!("\"{key}\" has been held for {most:?} (--max-hold); the command is ended"));
        }
    }

    fn hear(&mut self, report: Report) {
        match report {
            Report::Started(_) if terminal::is_input() && !shares_its_group() => {
                self.lend_terminal();
            }
            Report::Stopped(signal) => self.stopped(signal),
            Report::Late => {
                if self.why.is_none() {
                    self.ended_for(Why::Late, "it was not renewed in time");
                }
            }
            Report::Ended(status) => {
                let status = ExitStatus::from_raw(status);
                self.status = Some(status);
                if let Some(terminal) = &mut self.terminal {
                    terminal.take_back(status.code().is_none());
                }
            }
            Report::Started(_) | Report::Failed(_) | Report::Gone => {}
        }
    }

    fn lost(&mut self, cause: LossCause) {
        match self.args.on_lost {
            OnLost::Terminate => self.guarded.order(Order::End),
            OnLost::Kill => self.guarded.order(Order::Kill),
            OnLost::Ignore => {}
        }
        self.ended_for(Why::Lost(cause), why(cause));
    }

    fn ended_for(&mut self, why: Why, reason: &str) {
        self.why = Some(why);
        let then = match self.args.on_lost {
            OnLost::Ignore => "the command runs on without it (--on-lost ignore)",
            OnLost::Terminate | OnLost::Kill => "the command is ended",
        };
        if self.args.on_lost != OnLost::Ignore {
            self.overdue = Some(self.latest());
        }
        say::line(&format!("lost \"{}\": {reason}; {then}", shown(&self.args.key)));
    }

    /// A command that the terminal has stopped would hold the lock and do nothing.
    fn stopped(&mut self, signal: i32) {
        let wants_terminal = signal == Signal::TTIN.as_raw() || signal == Signal::TTOU.as_raw();
        if wants_terminal {
            self.wants_terminal = !self.lend_terminal();
            if !self.wants_terminal {
                self.guarded.order(Order::Signal(Signal::CONT));
            }
        } else if signal == Signal::TSTP.as_raw() && self.terminal.as_ref().is_some_and(Terminal::is_lent) {
            self.guarded.order(Order::Signal(Signal::CONT));
            say::line("a command that holds a lock is not stopped from the terminal; it goes on");
        }
    }

    fn lend_terminal(&mut self) -> bool {
        let group: Option<Pid> = self.guarded.group();
        self.terminal.as_mut().zip(group).is_some_and(|(terminal, group)| terminal.lend(group))
    }

    fn pass_on(&mut self, signal: Signal) {
        match signal {
            // Stopped, we could not renew.
            Signal::TSTP => say::line("it is not stopped while its command holds a lock"),
            Signal::CONT => {
                if std::mem::take(&mut self.wants_terminal) {
                    self.wants_terminal = !self.lend_terminal();
                }
                self.guarded.order(Order::Signal(signal));
            }
            _ => self.guarded.order(Order::Signal(signal)),
        }
    }

    fn gone(self) -> Outcome {
        self.guarded.finish();
        match (self.why, self.status) {
            (Some(why), _) => Outcome::Forced(why),
            (None, Some(status)) => Outcome::Ended(status),
            (None, None) => Outcome::Unguarded,
        }
    }

    fn take_over(self) -> Outcome {
        match (self.guarded.take_over(), self.why) {
            (false, _) => Outcome::StillThere,
            (true, Some(why)) => Outcome::Forced(why),
            (true, None) => Outcome::Unguarded,
        }
    }
}
