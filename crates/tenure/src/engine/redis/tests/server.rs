//! A server of a test's own, and a raw client to ask it the truth.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::super::wire::{Encoder, Incoming, Value};

pub(super) struct Server {
    port: u16,
    options: Vec<String>,
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl Server {
    pub(super) fn start() -> Server {
        Server::start_with(&[])
    }

    pub(super) fn start_with(options: &[&str]) -> Server {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut server = Server { port, options, dir: tempfile::tempdir().unwrap(), child: None };
        server.run();
        server
    }

    pub(super) fn run(&mut self) {
        let child = Command::new("redis-server")
            .args([
                "--port",
                &self.port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .args(&self.options)
            .current_dir(self.dir.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        self.child = Some(child);
        let over = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < over, "the server does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(super) fn raw(&self) -> Raw {
        Raw { stream: TcpStream::connect(("127.0.0.1", self.port)).unwrap(), incoming: Incoming::new() }
    }

    pub(super) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub(super) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    pub(super) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.child.as_ref().unwrap()), signal).unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(super) struct Raw {
    stream: TcpStream,
    incoming: Incoming,
}

impl Raw {
    pub(super) fn ask(&mut self, words: &[&str]) -> Value {
        let mut command = Encoder::default();
        command.command(words.len());
        for word in words {
            command.word(word.as_bytes());
        }
        self.stream.write_all(&command.into_bytes()).unwrap();
        loop {
            if let Some(value) = self.incoming.next().unwrap() {
                return value;
            }
            let count = self.stream.read(self.incoming.space()).unwrap();
            assert!(count > 0, "the server closed the raw connection");
            self.incoming.filled(count);
        }
    }

    pub(super) fn number(&mut self, words: &[&str]) -> i64 {
        match self.ask(words) {
            Value::Int(number) => number,
            other => panic!("{words:?} answered {other:?}"),
        }
    }

    pub(super) fn text(&mut self, words: &[&str]) -> String {
        let answer = self.ask(words);
        let text = answer.text().unwrap_or_else(|| panic!("{words:?} answered {answer:?}"));
        String::from_utf8(text.to_vec()).unwrap()
    }

    pub(super) fn texts(&mut self, words: &[&str]) -> Vec<String> {
        match self.ask(words) {
            Value::List(items) => {
                items.iter().map(|item| String::from_utf8(item.text().unwrap().to_vec()).unwrap()).collect()
            }
            other => panic!("{words:?} answered {other:?}"),
        }
    }
}
