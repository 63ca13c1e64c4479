//! The guard: the process between `tenure` and its command, which ends the command in time whatever
//! becomes of `tenure`.
//!
//! `tenure` starts itself anew as the guard, with one end of a pair of sockets as standard input, and
//! sends it what it needs to know together with what only it may have: the command's standard input, and
//! with sqlite the open file on which the lock's life rests. The guard is the parent of the command and a
//! subreaper, so it becomes the parent of whatever the command leaves behind. When `tenure` dies, the
//! other end of the sockets is closed, and the guard knows. When `tenure` stands still, validity is not
//! prolonged, and the guard ends the command by its own clock.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{self, SigSet};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::{self, Pid, Signal};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tenure::Moment;

use crate::exit::Exit;
use crate::say;

pub(crate) mod family;
pub(crate) mod talk;

use family::Family;
use talk::{OnLost, Order, Report, Terms};

/// The first word of the guard's command line. Nobody else needs it, so no help tells of it.
pub(crate) const WORD: &str = "guard--";

/// After `tenure` has died, the group is dead within half a second: killing it takes a moment, too.
const ORPHANED: Duration = Duration::from_millis(400);
/// How often it is looked whether something is left.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// The same while it is being killed, when little time is left.
const LOOK_AGAIN_SOON: Duration = Duration::from_millis(1);

/// Sends the terms, and the open files that only the guard may have: the command's standard input first.
pub(crate) fn arm(channel: &UnixStream, terms: Terms, files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(channel, &[IoSlice::new(terms.to_string().as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// What [`arm`] sent. Nobody inherits these files.
fn armed(channel: &UnixStream) -> io::Result<(Terms, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut text = [0; 256];
    let received =
        recvmsg(channel, &mut [IoSliceMut::new(&mut text)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            files.extend(sent);
        }
    }
    let line = String::from_utf8_lossy(&text[..received.bytes]).into_owned();
    Ok((line.parse().map_err(|()| io::ErrorKind::InvalidData)?, files))
}

/// The guard's whole life.
pub(crate) fn main(command: &[OsString]) -> Exit {
    match serve(command) {
        Ok(()) => Exit::Own(0),
        Err(error) => say::because(Exit::Bug, &format!("the guard of a command failed: {error}")),
    }
}

fn serve(command: &[OsString]) -> io::Result<()> {
    let _ = rustix::thread::set_name(c"tenure-guard");
    let channel = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (terms, files) = armed(&channel)?;
    let mut files = files.into_iter();
    let input = files.next().ok_or(io::ErrorKind::InvalidData)?;
    // Whatever else was sent lives as long as this function: until nothing is left of the command.
    let _life: Vec<OwnedFd> = files.collect();
    process::set_child_subreaper(Some(process::getpid()))?;

    let mut family = Family::new();
    match start(command, input) {
        Ok(leader) => family.set_leader(leader),
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or_else(|| rustix::io::Errno::INVAL.raw_os_error());
            return writeln!(&channel, "{}", Report::Failed(errno));
        }
    }
    let mut guard = Guard::new(channel, terms, family)?;
    guard.watch()
}

/// Starts the command as the leader of a process group of its own.
fn start(line: &[OsString], input: OwnedFd) -> io::Result<Pid> {
    let (program, arguments) = line.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    let child = command.args(arguments).stdin(Stdio::from(input)).process_group(0).spawn()?;
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::Other.into())
}

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// Asked to end.
    Ending {
        kill_at: Moment,
    },
    Killing,
}

struct Guard {
    channel: UnixStream,
    /// What of the next order has been read.
    heard: Vec<u8>,
    is_orphan: bool,
    terms: Terms,
    family: Family,
    phase: Phase,
    /// Whether those that left the group are ended, too: not if the command ends by itself.
    everyone: bool,
    leader_ended: bool,
    children: SignalFd,
    timer: OwnedFd,
}

impl Guard {
    fn new(channel: UnixStream, terms: Terms, family: Family) -> io::Result<Guard> {
        // Blocked only now: the command would inherit it. What a terminal or a person sends to end us is
        // for `tenure`; its end is ours.
        let mut mask = SigSet::all();
        mask.remove(signal::Signal::SIGABRT);
        mask.thread_block()?;
        let mut mask = SigSet::empty();
        mask.add(signal::Signal::SIGCHLD);
        channel.set_nonblocking(true)?;
        Ok(Guard {
            channel,
            heard: Vec::new(),
            is_orphan: false,
            terms,
            family,
            phase: Phase::Running,
            everyone: false,
            leader_ended: false,
            children: SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?,
            timer: timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?,
        })
    }

    /// That `tenure` cannot hear it shows when its orders are read.
    fn report(&self, report: Report) {
        let _ = (&self.channel).write_all(format!("{report}\n").as_bytes());
    }

    /// Until nothing is left.
    fn watch(&mut self) -> io::Result<()> {
        if let Some(leader) = self.family.leader() {
            self.report(Report::Started(leader.as_raw_nonzero().get()));
        }
        loop {
            self.look_at_the_leader();
            self.look_at_the_clock();
            if self.leader_ended && self.family.is_alone(self.everyone) {
                break;
            }
            self.set_timer()?;
            self.wait()?;
            self.hear();
        }
        self.family.reap();
        self.report(Report::Gone);
        Ok(())
    }

    fn look_at_the_leader(&mut self) {
        if let Some(signal) = self.family.stopped() {
            self.report(Report::Stopped(signal));
        }
        if self.leader_ended {
            return;
        }
        if let Some(status) = self.family.ended() {
            self.leader_ended = true;
            self.report(Report::Ended(status));
            if self.phase == Phase::Running && !self.family.is_alone(false) {
                self.end(self.terms.grace, false);
            }
        }
    }

    /// When the group must be dead: 2 % of the term before validity ends.
    fn latest(&self) -> Moment {
        self.terms.valid_until - self.terms.term / 50
    }

    /// When the end must begin, so that the grace is over by then.
    fn begin_at(&self) -> Option<Moment> {
        match self.terms.on_lost {
            OnLost::Terminate => Some(self.latest().min(self.terms.valid_until - self.terms.grace)),
            OnLost::Kill => Some(self.latest()),
            OnLost::Ignore => None,
        }
    }

    fn look_at_the_clock(&mut self) {
        let now = Moment::now();
        if self.phase == Phase::Running && self.begin_at().is_some_and(|begin| now >= begin) {
            self.report(Report::Late);
            match self.terms.on_lost {
                // Nobody is asked first.
                OnLost::Kill => self.kill(),
                OnLost::Terminate | OnLost::Ignore => self.end(self.terms.grace, true),
            }
        }
        if let Phase::Ending { kill_at } = self.phase
            && now >= kill_at
        {
            self.phase = Phase::Killing;
        }
        match self.phase {
            Phase::Running => {}
            Phase::Ending { .. } if self.everyone => self.family.ask_others(),
            Phase::Ending { .. } => {}
            Phase::Killing => self.family.kill(self.everyone),
        }
    }

    /// Asks the group to end, and has it killed when `patience` is over. It never gets more time by this.
    fn end(&mut self, patience: Duration, everyone: bool) {
        self.everyone |= everyone;
        let mut kill_at = Moment::now() + patience;
        if self.terms.on_lost != OnLost::Ignore {
            kill_at = kill_at.min(self.latest());
        }
        self.phase = match self.phase {
            Phase::Running => {
                self.family.end_by(Signal::TERM);
                Phase::Ending { kill_at }
            }
            Phase::Ending { kill_at: before } => Phase::Ending { kill_at: before.min(kill_at) },
            Phase::Killing => Phase::Killing,
        };
    }

    /// Has everything killed, from now on.
    fn kill(&mut self) {
        self.everyone = true;
        self.phase = Phase::Killing;
    }

    /// Rings when something is to be done next. This clock runs on while the machine is suspended.
    fn set_timer(&self) -> io::Result<()> {
        let soon = |pause| Some(Moment::now() + pause);
        let next = match self.phase {
            Phase::Running => self.begin_at(),
            Phase::Ending { kill_at } => soon(LOOK_AGAIN).map(|soon| soon.min(kill_at)),
            Phase::Killing => soon(LOOK_AGAIN_SOON),
        };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // Zero would switch it off; a moment that is over rings at once.
        let value = next.map_or(zero, |next| timespec(next.as_nanos().max(1)));
        let times = Itimerspec { it_interval: zero, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &times)?;
        Ok(())
    }

    fn wait(&self) -> io::Result<()> {
        let mut watched = vec![
            PollFd::new(&self.children, PollFlags::IN),
            PollFd::new(&self.timer, PollFlags::IN),
            PollFd::new(&self.channel, PollFlags::IN),
        ];
        if self.is_orphan {
            watched.pop();
        }
        match poll(&mut watched, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        while let Ok(Some(_)) = self.children.read_signal() {}
        Ok(())
    }

    /// Reads what `tenure` says.
    fn hear(&mut self) {
        let mut chunk = [0; 1024];
        while !self.is_orphan {
            match (&self.channel).read(&mut chunk) {
                Ok(0) => self.is_orphan = true,
                Ok(length) => self.heard.extend_from_slice(&chunk[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.is_orphan = true,
            }
        }
        while let Some(length) = self.heard.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.heard.drain(..=length).collect();
            if let Ok(order) = String::from_utf8_lossy(&line).trim_end().parse() {
                self.obey(order);
            }
        }
        if self.is_orphan {
            self.end(self.terms.grace.min(ORPHANED), true);
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Valid(until) => self.terms.valid_until = self.terms.valid_until.max(until),
            Order::Signal(signal) => match signal {
                Signal::HUP | Signal::INT | Signal::QUIT | Signal::TERM => self.family.end_by(signal),
                other => self.family.signal(other),
            },
            Order::End => self.end(self.terms.grace, true),
            Order::Kill => self.kill(),
        }
    }
}

fn timespec(nanos: u64) -> Timespec {
    const SECOND: u64 = 1_000_000_000;
    let part = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    Timespec { tv_sec: part(nanos / SECOND), tv_nsec: part(nanos % SECOND) }
}
