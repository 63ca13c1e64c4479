//! The command that runs under the lock, and the process group it leads.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use rustix::process::{self, Pid, Signal, WaitId, WaitIdOptions};
use tokio::sync::oneshot;
use tokio::time;

/// How often it is looked whether processes of the group are left.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How long a killed leader may take to be gone before we say so and leave.
const KILLED: Duration = Duration::from_secs(1);

/// A started command. Its group is killed if this is dropped before [`finish`](Child::finish).
pub(crate) struct Child {
    process: std::process::Child,
    group: Pid,
    end: Option<oneshot::Receiver<()>>,
    finished: bool,
}

impl Child {
    /// Starts it as the leader of a process group of its own, so that whatever it starts can be
    /// ended with it.
    pub(crate) fn start(line: &[OsString], variables: &[(&str, &str)]) -> io::Result<Child> {
        let (program, arguments) = line.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(arguments).envs(variables.iter().copied()).process_group(0);
        let process = command.spawn()?;
        let group = i32::try_from(process.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::Other)?;
        let (ended, end) = oneshot::channel();
        let child = Child { process, group, end: Some(end), finished: false };
        std::thread::Builder::new().name("tenure-child".to_owned()).spawn(move || {
            wait_unreaped(group);
            let _ = ended.send(());
        })?;
        Ok(child)
    }

    /// Waits for the leader's end. It is not reaped yet, so that the group's number stays ours.
    /// Cancelling loses nothing.
    pub(crate) async fn ended(&mut self) {
        if let Some(end) = &mut self.end {
            let _ = end.await;
            self.end = None;
        }
    }

    /// Sends a signal to the whole group. That nobody is left to take it is no failure.
    fn signal(&self, signal: Signal) {
        let _ = process::kill_process_group(self.group, signal);
    }

    /// Sends a signal that is meant to end the group. A stopped process, such as one that read from the
    /// terminal, would not see it unless it is continued.
    pub(crate) fn pass_on(&self, signal: Signal) {
        self.signal(signal);
        self.signal(Signal::CONT);
    }

    /// Asks the group to end.
    pub(crate) fn ask_to_end(&self) {
        self.pass_on(Signal::TERM);
    }

    /// Waits for the group's end, and kills what is left of it when `patience` is over.
    pub(crate) async fn end_within(&mut self, patience: Duration) {
        let _ = time::timeout(patience, self.gone()).await;
        self.signal(Signal::KILL);
        let _ = time::timeout(KILLED, self.ended()).await;
    }

    /// Waits until the leader has ended and nothing of its group runs any more.
    async fn gone(&mut self) {
        self.ended().await;
        while group_runs(self.group) {
            time::sleep(LOOK_AGAIN).await;
        }
    }

    /// How the leader ended; `None` if it has not, though it was killed.
    pub(crate) fn finish(mut self) -> Option<ExitStatus> {
        self.finished = true;
        self.process.try_wait().ok().flatten()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.finished {
            self.signal(Signal::KILL);
            let _ = self.process.wait();
        }
    }
}

/// Blocks until a child has ended, and leaves its end to be collected later.
fn wait_unreaped(pid: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(rustix::io::Errno::INTR) = process::waitid(WaitId::Pid(pid), options) {}
}

/// Whether a process of the group runs, zombies not counted. Where the system does not say, yes.
fn group_runs(group: Pid) -> bool {
    let Ok(entries) = std::fs::read_dir("/proc") else { return true };
    let group = group.as_raw_nonzero().to_string();
    entries.flatten().any(|entry| {
        let is_process = entry.file_name().to_string_lossy().bytes().all(|b| b.is_ascii_digit());
        let stat =
            if is_process { std::fs::read_to_string(entry.path().join("stat")) } else { return false };
        // `pid (name) state parent group …`; a name may hold anything, parentheses too.
        let stat = stat.unwrap_or_default();
        let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace();
        fields.next().is_some_and(|state| !matches!(state, "Z" | "X")) && fields.nth(1) == Some(&group)
    })
}
