//! A `redis-server` process.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::process::{Process, free_port, loopback};
use crate::raw::{Raw, Value};

/// How long a server may take until it answers.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// How often a start is tried again when another process took the port.
const TRIES: usize = 5;
/// The time limit of a raw request.
const RAW_LIMIT: Duration = Duration::from_secs(5);

/// How a server is set up. The default: no password, no TLS, data appended to a file.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// The password of the default user.
    pub password: Option<String>,
    /// Lines of an ACL file, such as `user app on >secret ~* +@all`.
    pub users: Vec<String>,
    /// Whether it also listens for TLS, with a certificate made for `localhost` and `127.0.0.1`.
    pub tls: bool,
    /// Whether it also listens on a [socket](RedisServer::socket) of this machine.
    pub unix: bool,
    /// Whether writes are appended to a file, without which nothing survives a kill.
    pub append_only: bool,
    /// Whether it runs by a clock that the test may [step](RedisServer::step_clock).
    pub own_clock: bool,
    /// Further arguments, such as `--maxmemory 1mb`.
    pub extra: Vec<String>,
}

impl Default for RedisOptions {
    fn default() -> RedisOptions {
        RedisOptions {
            password: None,
            users: Vec::new(),
            tls: false,
            unix: false,
            append_only: true,
            own_clock: false,
            extra: Vec::new(),
        }
    }
}

/// What becomes of the data at a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// It is found again.
    Kept,
    /// It is gone, as after a failed disk or a failover to an empty replica.
    Dropped,
}

/// A running `redis-server`, or the one named by `TENURE_REDIS_SERVER`.
#[derive(Debug)]
pub struct RedisServer {
    options: RedisOptions,
    port: u16,
    tls_port: Option<u16>,
    process: Mutex<Option<Process>>,
    // After the process, so that it is dropped after it.
    folder: TempDir,
}

impl RedisServer {
    /// The program.
    #[must_use]
    pub fn program() -> PathBuf {
        std::env::var_os("TENURE_REDIS_SERVER").map_or_else(|| "redis-server".into(), PathBuf::from)
    }

    /// Why no server can be started here; `None` if one can.
    #[must_use]
    pub fn missing() -> Option<String> {
        match Command::new(RedisServer::program()).arg("--version").output() {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(format!("redis-server --version ended with {}", output.status)),
            Err(error) => Some(format!("redis-server cannot be started: {error}")),
        }
    }

    /// Why no server can have a clock of its own here; `None` if one can.
    #[must_use]
    pub fn clock_missing() -> Option<String> {
        clock_library().is_none().then(|| "libfaketime is not installed (package faketime)".to_owned())
    }

    /// Starts one and waits until it answers.
    ///
    /// # Errors
    /// If it does not start or does not answer in time; the message carries the end of its log.
    pub fn start(options: RedisOptions) -> io::Result<RedisServer> {
        let folder = tempfile::Builder::new().prefix("tenure-redis-").tempdir()?;
        if options.tls {
            write_certificate(folder.path())?;
        }
        if !options.users.is_empty() {
            std::fs::write(folder.path().join("users.acl"), options.users.join("\n") + "\n")?;
        }
        std::fs::write(folder.path().join("clock"), "+0")?;
        let mut server = RedisServer { options, port: 0, tls_port: None, process: Mutex::new(None), folder };
        for attempt in 1.. {
            server.port = free_port()?;
            server.tls_port = if server.options.tls { Some(free_port()?) } else { None };
            match server.launch() {
                Ok(()) => break,
                Err(_) if attempt < TRIES && server.log().contains("Address already in use") => {
                    std::fs::remove_file(server.log_path())?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(server)
    }

    fn launch(&self) -> io::Result<()> {
        let process = Process::start(self.command(), &self.log_path())?;
        let id = process.id();
        let mut slot = self.lock();
        *slot = Some(process);
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            if slot.as_mut().is_some_and(|process| !matches!(process.ended(), Ok(None))) {
                *slot = None;
                return Err(self.start_failed("it ended"));
            }
            if self.answers(id) {
                return Ok(());
            }
            if Instant::now() > deadline {
                *slot = None;
                return Err(self.start_failed("it did not answer in time"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(RedisServer::program());
        if let Some(library) = clock_library().filter(|_| self.options.own_clock) {
            // The C library's allocator comes before that of the server, which would ask for the time
            // before the library is ready to tell it.
            command.env("LD_PRELOAD", format!("{}:libc.so.6", library.display()));
            command.env("FAKETIME_TIMESTAMP_FILE", self.folder.path().join("clock"));
            command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let mut set = |name: &str, value: &str| {
            command.arg(format!("--{name}")).arg(value);
        };
        set("port", &self.port.to_string());
        set("bind", "127.0.0.1");
        set("save", "");
        set("appendonly", if self.options.append_only { "yes" } else { "no" });
        // A write that reached the kernel survives the death of the process.
        set("appendfsync", "no");
        set("dir", &self.folder.path().to_string_lossy());
        if let Some(password) = &self.options.password {
            set("requirepass", password);
        }
        if !self.options.users.is_empty() {
            set("aclfile", &self.folder.path().join("users.acl").to_string_lossy());
        }
        if self.options.unix {
            set("unixsocket", &self.socket().to_string_lossy());
        }
        if let Some(port) = self.tls_port {
            set("tls-port", &port.to_string());
            set("tls-cert-file", &self.certificate().to_string_lossy());
            set("tls-key-file", &self.folder.path().join("key.pem").to_string_lossy());
            set("tls-ca-cert-file", &self.certificate().to_string_lossy());
            set("tls-auth-clients", "no");
        }
        command.args(&self.options.extra);
        command
    }

    /// Whether this very process answers, and not another one that took the port.
    fn answers(&self, id: u32) -> bool {
        let ask = || {
            let mut raw = self.raw(0)?;
            raw.demand(&["PING"])?;
            raw.demand(&["INFO", "server"])
        };
        let information = ask().ok().and_then(Value::text).unwrap_or_default();
        information.lines().any(|line| line.strip_prefix("process_id:") == Some(id.to_string().as_str()))
    }

    fn start_failed(&self, what: &str) -> io::Error {
        let log = self.log();
        let tail: Vec<&str> = log.lines().rev().take(20).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        io::Error::other(format!("redis-server did not start: {what}; its log ends:\n{}", tail.join("\n")))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        loopback(self.port)
    }

    /// Where it listens for TLS.
    #[must_use]
    pub fn tls_address(&self) -> Option<SocketAddr> {
        self.tls_port.map(loopback)
    }

    /// The socket on which it listens, if it was started with one.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("redis.sock")
    }

    /// The certificate that clients have to trust.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }

    /// What it wrote to its log.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("redis.log")
    }

    /// The process id, while it runs.
    #[must_use]
    pub fn process_id(&self) -> Option<u32> {
        self.lock().as_ref().map(Process::id)
    }

    /// A raw connection to a database, as the default user.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn raw(&self, database: u8) -> io::Result<Raw> {
        Raw::connect(self.address(), self.options.password.as_deref(), database, RAW_LIMIT)
    }

    /// Stops it in its tracks (SIGSTOP). Connections stay and requests wait in the kernel.
    ///
    /// # Errors
    /// If it does not run.
    pub fn pause(&self) -> io::Result<()> {
        self.running(Process::pause)
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// If it does not run.
    pub fn resume(&self) -> io::Result<()> {
        self.running(Process::resume)
    }

    fn running(&self, act: impl FnOnce(&Process) -> io::Result<()>) -> io::Result<()> {
        match &*self.lock() {
            Some(process) => act(process),
            None => Err(io::Error::other("redis-server does not run")),
        }
    }

    /// Sets its own clock: so many seconds ahead of the machine's.
    ///
    /// # Errors
    /// If it has no clock of its own.
    pub fn step_clock(&self, seconds: i64) -> io::Result<()> {
        if !self.options.own_clock {
            return Err(io::Error::other("this redis-server runs by the clock of the machine"));
        }
        // In one step: the server reads it whenever it looks at the time.
        let (next, clock) = (self.folder.path().join("clock.next"), self.folder.path().join("clock"));
        std::fs::write(&next, format!("{seconds:+}"))?;
        std::fs::rename(next, clock)
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    pub fn kill(&self) {
        *self.lock() = None;
    }

    /// Kills it if it runs, and starts it again on the same port.
    ///
    /// # Errors
    /// If it does not start, or if data should be kept that was never stored.
    pub fn restart(&self, data: Data) -> io::Result<()> {
        self.kill();
        match data {
            Data::Kept if !self.options.append_only => {
                return Err(io::Error::other("this server stores nothing that could be kept"));
            }
            Data::Kept => {}
            Data::Dropped => {
                let stored = self.folder.path().join("appendonlydir");
                if stored.exists() {
                    std::fs::remove_dir_all(stored)?;
                }
            }
        }
        self.launch()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Process>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The library that stands between a program and the clock.
fn clock_library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|library| library.exists())
}

fn write_certificate(folder: &Path) -> io::Result<()> {
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).map_err(io::Error::other)?;
    std::fs::write(folder.join("certificate.pem"), made.cert.pem())?;
    std::fs::write(folder.join("key.pem"), made.signing_key.serialize_pem())
}
