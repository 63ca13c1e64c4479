//! A server, commands against it, and their ends.

use std::io::Read;
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
        let mut command = tenure(&["run", "--engine", &self.url()]);
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
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs to the end.
pub(crate) fn end_of(command: Command) -> End {
    Running::start(command).end()
}

/// A command that runs. Killed when dropped.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(mut command: Command) -> Running {
        Running(command.spawn().unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> End {
        let deadline = Instant::now() + PATIENCE;
        while self.is_running() {
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
        let status = self.0.wait().unwrap();
        End { status, out: read(self.0.stdout.take()), err: read(self.0.stderr.take()) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn read(stream: Option<impl Read>) -> String {
    let mut text = String::new();
    stream.unwrap().read_to_string(&mut text).unwrap();
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
