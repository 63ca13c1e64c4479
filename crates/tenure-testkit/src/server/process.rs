//! A child process, signals to it, and ports that nobody else takes.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use rand::Rng;
use rustix::process::{Pid, Signal, kill_process};

/// Ports for servers: below the range from which the kernel takes ports for outgoing connections,
/// so that a server can come back on its port after it was killed.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// How many ports are tried.
const TRIES: usize = 200;

/// A loopback port that was free a moment ago. Another process may still be faster: whoever starts
/// a server must try again with another one.
pub(crate) fn free_port() -> io::Result<u16> {
    let mut last = io::Error::other("no port was tried");
    for _ in 0..TRIES {
        let port = rand::rng().random_range(PORTS);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(last)
}

pub(crate) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A child process that is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts a program whose output goes to the end of a file.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(mut command: Command, log: &Path) -> io::Result<Process> {
        let log = File::options().create(true).append(true).open(log)?;
        let child =
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn().map_err(|error| {
                io::Error::new(error.kind(), format!("{:?}: {error}", command.get_program()))
            })?;
        Ok(Process { child })
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Stops it in its tracks (SIGSTOP).
    ///
    /// # Errors
    /// If it is gone.
    pub fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// If it is gone.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Works on a stopped process too. An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
