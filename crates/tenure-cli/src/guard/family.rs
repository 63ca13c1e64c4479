//! The command's processes: its group, and what this process has become the parent of.
//!
//! A process that is a *subreaper* inherits the children of each process below it that dies. So once a
//! command's leader has ended, all that is left of it is a child of ours, or below one.

use std::collections::HashSet;
use std::fs;

use rustix::process::{self, Pid, Signal, WaitId, WaitIdOptions};

/// The leader of a group, and whatever it has started.
pub(crate) struct Family {
    leader: Option<Pid>,
    /// Children that were there before.
    strangers: HashSet<Pid>,
    /// Which ones outside of the group have been asked to end.
    asked: HashSet<Pid>,
}

impl Family {
    /// A family that has no leader yet. All children of now are strangers to it.
    pub(crate) fn new() -> Family {
        Family { leader: None, strangers: children().into_iter().collect(), asked: HashSet::new() }
    }

    pub(crate) fn set_leader(&mut self, leader: Pid) {
        self.leader = Some(leader);
    }

    /// The command, unless it has been collected.
    pub(crate) fn leader(&self) -> Option<Pid> {
        self.leader
    }

    /// Sends a signal to the group. That nobody is left to take it is no failure.
    pub(crate) fn signal(&self, signal: Signal) {
        if let Some(group) = self.leader {
            let _ = process::kill_process_group(group, signal);
        }
    }

    /// Sends the group a signal that is meant to end it. A stopped process, such as one that read from the
    /// terminal, would not see it unless it is continued.
    pub(crate) fn end_by(&self, signal: Signal) {
        self.signal(signal);
        self.signal(Signal::CONT);
    }

    /// Asks, once, those to end that have left the group and lost their parents.
    pub(crate) fn ask_others(&mut self) {
        for pid in self.others() {
            if self.asked.insert(pid) {
                let _ = process::kill_process(pid, Signal::TERM);
                let _ = process::kill_process(pid, Signal::CONT);
            }
        }
    }

    /// Kills the group, and with `everyone` also those that have left it. Whoever is below these becomes
    /// a child of ours by that: call it again until nothing is left.
    pub(crate) fn kill(&self, everyone: bool) {
        self.signal(Signal::KILL);
        if everyone {
            for pid in self.others() {
                let _ = process::kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Whether nothing of the group runs, the leader not counted; with `everyone`, nothing at all.
    pub(crate) fn is_alone(&mut self, everyone: bool) -> bool {
        let mut others = self.others();
        others.retain(|pid| !reaped(*pid));
        others.is_empty() || !everyone && !self.leader.is_some_and(group_runs)
    }

    /// Children that are neither strangers nor the leader.
    fn others(&self) -> Vec<Pid> {
        let mut all = children();
        all.retain(|pid| Some(*pid) != self.leader && !self.strangers.contains(pid));
        all
    }

    /// The status of a leader that has ended. It is not reaped, so that the group's number stays ours.
    pub(crate) fn ended(&self) -> Option<i32> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = process::waitid(WaitId::Pid(self.leader?), options).ok().flatten()?;
        let code = status.exit_status().map(|code| (code & 0xff) << 8);
        Some(code.or(status.terminating_signal()).unwrap_or(0))
    }

    /// The signal that has stopped the leader, told once for each time.
    pub(crate) fn stopped(&self) -> Option<i32> {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        process::waitid(WaitId::Pid(self.leader?), options).ok().flatten()?.stopping_signal()
    }

    /// Collects the leader. From then on its number may be somebody else's.
    pub(crate) fn reap(&mut self) {
        if let Some(leader) = self.leader.take() {
            reaped(leader);
        }
    }
}

/// Collects a child if it has ended. True if it is no child of ours any more.
pub(crate) fn reaped(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    matches!(process::waitid(WaitId::Pid(pid), options), Ok(Some(_)) | Err(rustix::io::Errno::CHILD))
}

/// The children of this process.
fn children() -> Vec<Pid> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists: Result<String, _> =
        threads.flatten().map(|thread| fs::read_to_string(thread.path().join("children"))).collect();
    match lists {
        Ok(lists) => lists.split_ascii_whitespace().filter_map(number).collect(),
        // A kernel without these lists: look at everybody's parent.
        Err(_) => {
            let me = process::getpid().as_raw_nonzero().get();
            processes().filter(|one| one.parent == me).map(|one| one.pid).collect()
        }
    }
}

/// Whether a process of the group runs, zombies not counted.
fn group_runs(group: Pid) -> bool {
    let group = group.as_raw_nonzero().get();
    processes().any(|one| one.runs && one.group == group)
}

struct Process {
    pid: Pid,
    runs: bool,
    parent: i32,
    group: i32,
}

fn processes() -> impl Iterator<Item = Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = number(entry.file_name().to_str()?)?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // `pid (name) state parent group …`; a name may hold anything, parentheses too.
        let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
        let runs = !matches!(fields.next()?, "Z" | "X");
        let (parent, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        Some(Process { pid, runs, parent, group })
    })
}

fn number(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

/// Whether others are in the process group of this process: a pipeline, or the script that called us.
pub(crate) fn shares_its_group() -> bool {
    let (me, group) = (process::getpid(), process::getpgrp().as_raw_nonzero().get());
    processes().any(|one| one.runs && one.group == group && one.pid != me)
}
