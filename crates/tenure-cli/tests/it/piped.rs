//! Commands whose input and output a test holds in its hands.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Bench, End, tenure, until};

/// How long a line may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A command with a line to each end. Ended when dropped.
pub(crate) struct Piped {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    err: File,
}

impl Piped {
    /// `tenure` with these words.
    pub(crate) fn tenure(words: &[&str]) -> Piped {
        let (child, err) = start(tenure(words));
        Piped::of(child, err)
    }

    fn of(mut child: Child, err: File) -> Piped {
        let (told, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines() {
                let Ok(line) = line else { return };
                if told.send(line).is_err() {
                    return;
                }
            }
        });
        Piped { input: child.stdin.take(), child, lines, err }
    }

    /// `tenure hold` with these words, on the server of the test.
    pub(crate) fn hold(url: &str, words: &[&str]) -> Piped {
        Piped::tenure(&[&["hold", "--engine", url], words].concat())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next line.
    pub(crate) fn line(&mut self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("no line: {error}: {}", self.said()))
    }

    /// The next line, which is JSON of this version.
    pub(crate) fn json(&mut self) -> Value {
        let line = self.line();
        let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert_eq!(value["v"], 1, "{line}");
        assert!(line.starts_with(r#"{"v":1,"#), "{line}");
        value
    }

    /// The next event of a hold, which must be this one.
    pub(crate) fn event(&mut self, name: &str) -> Value {
        let event = self.json();
        assert_eq!(event["event"], name, "{event}");
        event
    }

    /// Waits for an event, passing over others.
    pub(crate) fn until_event(&mut self, name: &str) -> Value {
        loop {
            let event = self.json();
            if event["event"] == name {
                return event;
            }
        }
    }

    /// Whether nothing was written for a while.
    pub(crate) fn is_quiet(&mut self, while_: Duration) -> bool {
        self.lines.recv_timeout(while_).is_err()
    }

    pub(crate) fn input(&mut self) -> &mut ChildStdin {
        self.input.as_mut().unwrap()
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// What it said on standard error so far.
    pub(crate) fn said(&mut self) -> String {
        let mut text = String::new();
        self.err.seek(SeekFrom::Start(0)).unwrap();
        self.err.read_to_string(&mut text).unwrap();
        text
    }

    /// Waits for its end, with what it wrote since the last line that was read.
    pub(crate) fn end(mut self) -> End {
        until("it ends", || self.child.try_wait().unwrap().is_some());
        let status = self.child.wait().unwrap();
        let out = self.lines.iter().map(|line| line + "\n").collect();
        End { status, out, err: self.said() }
    }
}

impl Drop for Piped {
    fn drop(&mut self) {
        end_now(&mut self.child);
    }
}

fn end_now(child: &mut Child) {
    if matches!(child.try_wait(), Ok(None)) {
        let _ = kill_process(Pid::from_child(child), Signal::TERM);
        let _ = child.wait();
    }
}

fn start(mut command: Command) -> (Child, File) {
    let err = tempfile::tempfile().unwrap();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(err.try_clone().unwrap());
    (command.spawn().unwrap(), err)
}

/// A command whose output is read by hand, so that it can be closed.
pub(crate) struct Raw {
    child: Child,
    output: Option<BufReader<ChildStdout>>,
}

impl Raw {
    pub(crate) fn tenure(words: &[&str]) -> Raw {
        let (mut child, _) = start(tenure(words));
        let output = child.stdout.take().map(BufReader::new);
        Raw { child, output }
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.as_mut().unwrap().read_line(&mut line).unwrap();
        line
    }

    /// Makes the pipe hold no more than a page.
    pub(crate) fn narrow_output(&self) {
        rustix::pipe::fcntl_setpipe_size(self.output.as_ref().unwrap().get_ref(), 4096).unwrap();
    }

    pub(crate) fn close_input(&mut self) {
        self.child.stdin = None;
    }

    pub(crate) fn close_output(&mut self) {
        self.output = None;
    }

    pub(crate) fn code(mut self) -> Option<i32> {
        until("it ends", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        end_now(&mut self.child);
    }
}

/// The URLs of all engines of this build that exclude other processes.
pub(crate) fn urls(bench: &Bench) -> Vec<String> {
    let engines = crate::support::end_of(tenure(&["engines", "--json"])).out;
    let mut urls = Vec::new();
    for line in engines.lines() {
        let engine: Value = serde_json::from_str(line).unwrap();
        match engine["name"].as_str().unwrap() {
            "memory" => {}
            "redis" => urls.push(bench.url()),
            "sqlite" => urls.push(format!("sqlite:{}", bench.file("locks.sqlite").display())),
            other => panic!("{other} is not tried by these tests"),
        }
    }
    urls
}
