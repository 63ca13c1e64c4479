//! Standard input and output of commands that go on for long: written line by line, and watched for
//! their other ends' going away.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::oneshot;

use crate::exit::Exit;

/// How often a job in the background looks whether it came to the foreground.
const FOREGROUND: Duration = Duration::from_millis(500);

/// Which stream came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nothing more comes in.
    Input,
    /// Nobody reads what is written any more.
    Output,
}

/// Writes a line at once.
///
/// # Errors
/// Those of writing; `BrokenPipe` if nobody reads it.
pub(crate) fn print(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Whether a line can be written without waiting for the reader.
pub(crate) fn has_room() -> bool {
    let out = io::stdout();
    let mut room = [PollFd::new(&out, PollFlags::OUT)];
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut room, Some(&none)).unwrap_or(0) > 0
}

/// Writes a line, or leaves it out where the reader makes no room for it: one that does not read must not make
/// us stand still.
pub(crate) fn offer(line: &str) -> io::Result<()> {
    if has_room() { print(line) } else { Ok(()) }
}

/// How to end when writing failed: as a program does that `SIGPIPE` ended, if nobody reads any more.
pub(crate) fn failed(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Exit::of_signal(rustix::process::Signal::PIPE.as_raw()),
        _ => crate::say::because(Exit::CouldNotRun, &format!("standard output cannot be written: {error}")),
    }
}

/// Tells of the first end: of the output, and if `input` says so, of the input, whose contents are passed
/// over. Never tells if neither ends.
pub(crate) fn ends(input: bool) -> io::Result<oneshot::Receiver<Ended>> {
    let (tell, told) = oneshot::channel();
    // A thread, since reading a terminal or a file cannot be waited for otherwise.
    std::thread::Builder::new().name("tenure-streams".to_owned()).spawn(move || {
        if let Some(ended) = watch(input) {
            let _ = tell.send(ended);
        } else {
            // The receiver must not take this for an end.
            std::mem::forget(tell);
        }
    })?;
    Ok(told)
}

fn watch(input: bool) -> Option<Ended> {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let mut buffer = [0; 4096];
    loop {
        let wanted = if input { PollFlags::IN } else { PollFlags::empty() };
        let mut streams = [PollFd::new(&stdout, PollFlags::empty()), PollFd::new(&stdin, wanted)];
        let watched = if input { 2 } else { 1 };
        match poll(&mut streams[..watched], None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return None,
            Ok(_) => {}
        }
        let [output, incoming] = streams.map(|stream| stream.revents());
        if output.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
            return Some(Ended::Output);
        }
        if input && !incoming.is_empty() && belongs_to_others(&stdin) {
            std::thread::sleep(FOREGROUND);
        } else if input && !incoming.is_empty() {
            match rustix::io::read(stdin.as_fd(), &mut buffer) {
                Ok(1..) | Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                // A terminal that is gone answers with an error.
                Ok(0) | Err(_) => return Some(Ended::Input),
            }
        }
    }
}

/// Whether it is a terminal on which we are in the background: reading would stop us.
fn belongs_to_others(stdin: &io::Stdin) -> bool {
    stdin.is_terminal()
        && rustix::termios::tcgetpgrp(stdin).is_ok_and(|group| group != rustix::process::getpgrp())
}
