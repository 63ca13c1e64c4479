//! A server, commands against it, and their ends.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tenure_testkit::raw::Value;
use tenure_testkit::server::{RedisOptions, RedisServer};

/// How long anything may take before a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server of this test's own, and a folder for what its commands write.
pub(crate) struct Bench {
    pub(crate) server: RedisServer,
    folder: TempDir,
}

/// How a command ended, and what it said.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl End {
    /// Its exit code. A command that a signal ended has none, and fails the test.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by a signal: {self:?}"))
    }
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::with(RedisOptions::default())
    }

    pub(crate) fn with(options: RedisOptions) -> Bench {
        Bench { server: RedisServer::start(options).unwrap(), folder: TempDir::new().unwrap() }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.server.address())
    }

    /// A file that the commands of this test write.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `tenure run` with these words, in this test's folder.
    pub(crate) fn run(&self, words: &[&str]) -> Running {
        self.run_on(&self.url(), words)
    }

    /// The same on an engine of another address, such as a proxy's.
    pub(crate) fn run_on(&self, url: &str, words: &[&str]) -> Running {
        let mut command = tenure(&["run", "--engine", url]);
        command.args(words).current_dir(self.folder.path());
        Running::start(command)
    }

    /// Asks the server itself.
    pub(crate) fn ask(&self, words: &[&str]) -> Value {
        self.server.raw(0).unwrap().demand(words).unwrap()
    }

    /// All keys of the server, besides the counter of tokens, which each client sets as it connects.
    pub(crate) fn traces(&self) -> Vec<String> {
        let keys = self.ask(&["KEYS", "*"]).texts();
        keys.into_iter().filter(|key| !key.starts_with("tenure:token")).collect()
    }

    /// Waits until a key is there, or gone.
    pub(crate) fn until_held(&self, key: &str, held: bool) {
        until(&format!("{key} held: {held}"), || self.ask(&["EXISTS", key]) == Value::Int(i64::from(held)));
    }
}

/// The program under test, without an engine in its environment, and with no signal ignored: what
/// runs the tests may itself run in the background.
pub(crate) fn tenure(words: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT,TERM", env!("CARGO_BIN_EXE_tenure")]).args(words);
    command.env_remove("TENURE_URL").env_remove("TENURE_URL_FILE");
    command
}

/// Runs to the end.
pub(crate) fn end_of(command: Command) -> End {
    Running::start(command).end()
}

/// A command that runs. Ended when dropped, so that its own child ends too.
pub(crate) struct Running {
    child: Child,
    // Files and not pipes: what a command leaves behind could keep a pipe open for ever.
    out: File,
    err: File,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
        Running { child: command.spawn().unwrap(), out, err }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> String {
        self.child.id().to_string()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> End {
        let deadline = Instant::now() + PATIENCE;
        while self.is_running() {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
        let status = self.child.wait().unwrap();
        End { status, out: read(&mut self.out), err: read(&mut self.err) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(2);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(file: &mut File) -> String {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_string(&mut text).unwrap();
    text
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a file is there, and reads it.
pub(crate) fn until_written(path: &Path) -> String {
    until(&format!("{} is written", path.display()), || {
        std::fs::read_to_string(path).is_ok_and(|text| text.ends_with('\n'))
    });
    std::fs::read_to_string(path).unwrap().trim_end().to_owned()
}

/// Whether a process runs, zombies not counted.
pub(crate) fn runs(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// The process that guards the command of a `tenure run`.
pub(crate) fn guard_of(run: &Running) -> String {
    let path = format!("/proc/{0}/task/{0}/children", run.pid());
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

/// Kills one process.
pub(crate) fn kill(pid: &str, signal: Signal) {
    kill_process(Pid::from_raw(pid.parse().unwrap()).unwrap(), signal).unwrap();
}
