//! `tenure release --force`: a key is taken from its holder.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tenure_testkit::raw::Value;

use crate::piped::{Piped, urls};
use crate::support::{Bench, end_of, tenure, until};

#[test]
fn without_force_it_explains() {
    let end = end_of(tenure(&["release", "--engine", "memory:", "k"]));
    assert_eq!((end.code(), end.out.as_str()), (64, ""));
    assert!(end.err.contains("only the holder gives a lock back") && end.err.contains("--force"), "{end:?}");
}

#[test]
fn a_free_key_is_no_failure() {
    let bench = Bench::new();
    for url in urls(&bench) {
        let end = end_of(tenure(&["release", "--force", "--engine", &url, "k"]));
        assert_eq!((end.code(), end.out.as_str()), (0, ""));
        assert!(end.err.starts_with("tenure: nobody holds \"k\" on "), "{end:?}");
    }
}

#[test]
fn a_run_loses_its_lock_and_the_next_token_is_greater() {
    let bench = Bench::new();
    for url in urls(&bench) {
        let started = bench.file("started");
        let _ = std::fs::remove_file(&started);
        let script = "echo $TENURE_TOKEN > started; sleep 30";
        let run = bench.run_on(&url, &["--ttl", "900ms", "k", "--", "sh", "-c", script]);
        let token: u64 = crate::support::until_written(&started).parse().unwrap();
        let mut waiter = Piped::hold(&url, &["k"]);
        waiter.event("waiting");

        let end = end_of(tenure(&["release", "--force", "--engine", &url, "k"]));
        assert_eq!(end.code(), 0, "{end:?}");
        assert!(end.out.starts_with("released \"k\", held by process "), "{end:?}");
        assert_eq!(end.out.lines().count(), 1);
        assert!(end.err.contains("within a third of its term"), "{end:?}");
        let next: u64 = waiter.until_event("granted")["token"].as_str().unwrap().parse().unwrap();
        assert!(next > token);
        let end = run.end();
        assert_eq!(end.code(), 76, "{end:?}");
        waiter.close_input();
        waiter.event("released");
    }
    assert_eq!(bench.traces(), [""; 0]);
}

#[test]
fn a_holder_that_is_not_ours_is_left_alone() {
    let bench = Bench::new();
    bench.ask(&["SET", "k", "go-program", "PX", "30000"]);
    let end = end_of(tenure(&["release", "--force", "--engine", &bench.url(), "k"]));
    assert_eq!((end.code(), end.out.as_str()), (69, ""), "{end:?}");
    assert!(end.err.contains("delete \"k\" in the store by hand"), "{end:?}");
    assert_eq!(bench.ask(&["GET", "k"]).text().as_deref(), Some("go-program"));
}

/// On a terminal it asks, and takes a yes for a yes and nothing else.
#[test]
fn on_a_terminal_it_asks() {
    let bench = Bench::new();
    let mut hold = Piped::hold(&bench.url(), &["k"]);
    hold.event("granted");
    let pid = hold.pid().to_string();
    for (answer, code) in [("n\n", 130), ("\n", 130), ("\u{4}", 130), ("y\n", 0)] {
        let mut command = tenure(&["release", "--force", "--engine", &bench.url(), "k"]);
        let mut terminal = Terminal::open();
        command.stdin(terminal.end()).stdout(terminal.end()).stderr(terminal.end());
        let mut child = command.spawn().unwrap();
        terminal.until_shown("[y/N] ");
        assert!(terminal.shown.contains(&format!("process {pid} on ")), "{}", terminal.shown);
        assert_eq!(bench.ask(&["EXISTS", "k"]), Value::Int(1), "nothing is done before the answer");
        terminal.master.write_all(answer.as_bytes()).unwrap();
        until("it ends", || child.try_wait().unwrap().is_some());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{answer:?}");
        assert_eq!(bench.ask(&["EXISTS", "k"]), Value::Int(i64::from(code != 0)));
    }
    let mut command = tenure(&["release", "--force", "--yes", "--engine", &bench.url(), "k"]);
    let terminal = Terminal::open();
    command.stdin(terminal.end()).stdout(terminal.end()).stderr(terminal.end());
    assert!(command.status().unwrap().success(), "with --yes it does not ask");
}

struct Terminal {
    master: File,
    shown: String,
}

impl Terminal {
    fn open() -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        Terminal { master: master.into(), shown: String::new() }
    }

    fn end(&self) -> Stdio {
        let name = ptsname(&self.master, Vec::new()).unwrap();
        let end = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        end.into()
    }

    fn until_shown(&mut self, text: &str) {
        while !self.shown.contains(text) {
            let mut buffer = [0; 4096];
            let read = self.master.read(&mut buffer).unwrap();
            self.shown.push_str(&String::from_utf8_lossy(&buffer[..read]));
        }
    }
}
