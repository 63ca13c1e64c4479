//! A real terminal, as a person has one: tmux.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::support::{Bench, until, until_written};

/// A terminal of its own server, ended when dropped.
struct Terminal<'a> {
    bench: &'a Bench,
}

impl Terminal<'_> {
    /// With an interactive shell in the test's folder.
    fn open(bench: &Bench) -> Terminal<'_> {
        let terminal = Terminal { bench };
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", "150", "-y", "40", "bash --norc"]);
        terminal.say("PS1='ready> '");
        until("the shell is ready", || terminal.shows().lines().any(|line| line.starts_with("ready>")));
        terminal
    }

    fn tmux(&self, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.bench.file("tmux")).args(words);
        command.current_dir(self.bench.file(".")).env_remove("TMUX").env("TERM", "xterm");
        command.env_remove("TENURE_URL").env_remove("TENURE_URL_FILE");
        let output = command.output().expect("tmux is needed; scripts/test.sh installs it");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Types a line.
    fn say(&self, line: &str) {
        self.tmux(&["send-keys", "-l", line]);
        self.key("Enter");
    }

    fn key(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    fn shows(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Types `tenure run` with these words; its exit code is written to a file.
    fn run(&self, words: &str) {
        let url = self.bench.url();
        self.say(&format!("{} run --engine {url} {words}; echo $? > code", env!("CARGO_BIN_EXE_tenure")));
    }

    fn code(&self) -> String {
        let path = self.bench.file("code");
        let code = until_written(&path);
        std::fs::remove_file(path).unwrap();
        code
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        let _ = Command::new("tmux").arg("-S").arg(self.bench.file("tmux")).arg("kill-server").output();
    }
}

fn waits_for(terminal: &Terminal<'_>, text: &str) {
    until(text, || terminal.shows().contains(text));
}

#[test]
fn who_waits_sees_who_holds_it_and_ctrl_c_leaves_the_queue() {
    let bench = Bench::new();
    let holder = bench.run(&["jobs/nightly", "--", "sleep", "60"]);
    bench.until_held("jobs/nightly", true);
    let alone = bench.traces().len();
    let terminal = Terminal::open(&bench);
    terminal.run("jobs/nightly -- touch ran");
    let held = format!("for \"jobs/nightly\" on redis; held by {}@", holder.pid());
    waits_for(&terminal, &held);
    waits_for(&terminal, "next in the queue");
    waits_for(&terminal, "waiting 2s");
    let lines = terminal.shows().lines().filter(|line| line.contains("tenure: waiting")).count();
    assert_eq!(lines, 1, "{}", terminal.shows());
    assert!(terminal.shows().contains(" UTC"), "{}", terminal.shows());
    terminal.key("C-c");
    assert_eq!(terminal.code(), "130");
    assert!(!terminal.shows().contains("tenure: waiting"), "{}", terminal.shows());
    assert_eq!(bench.traces().len(), alone, "it left the queue");
    assert!(!bench.file("ran").exists());
}

#[test]
fn the_line_goes_when_the_lock_comes() {
    let bench = Bench::new();
    let holder = bench.run(&["k", "--", "sleep", "60"]);
    bench.until_held("k", true);
    let terminal = Terminal::open(&bench);
    terminal.run("k -- echo it runs");
    waits_for(&terminal, "tenure: waiting");
    holder.signal(Signal::TERM);
    assert_eq!(terminal.code(), "0");
    let shown = terminal.shows();
    assert!(shown.lines().any(|line| line == "it runs"), "{shown}");
    assert!(!shown.contains("tenure: waiting"), "{shown}");
}

#[test]
fn a_command_reads_from_the_terminal_and_gets_ctrl_c() {
    let bench = Bench::new();
    let terminal = Terminal::open(&bench);
    terminal.run("k -- sh -c 'echo name?; read name; echo $name > name; echo > asked; sleep 60'");
    waits_for(&terminal, "name?");
    terminal.say("Ada");
    assert_eq!(until_written(&bench.file("name")), "Ada");
    until_written(&bench.file("asked"));
    terminal.key("C-c");
    assert_eq!(terminal.code(), "130");
    assert_eq!(bench.traces(), [""; 0], "released");
    // The shell has its terminal again.
    terminal.say("echo > again");
    until_written(&bench.file("again"));
}

/// In a script the terminal stays with the script until the command asks for it.
#[test]
fn a_command_in_a_script_reads_from_the_terminal_too() {
    let bench = Bench::new();
    let terminal = Terminal::open(&bench);
    let line = format!("{} run --engine {} k -- sh -c", env!("CARGO_BIN_EXE_tenure"), bench.url());
    std::fs::write(
        bench.file("script"),
        format!("{line} 'echo name?; read name; echo $name > name'; read other; echo $other > other\n"),
    )
    .unwrap();
    terminal.say("sh ./script");
    waits_for(&terminal, "name?");
    terminal.say("Ada");
    assert_eq!(until_written(&bench.file("name")), "Ada");
    terminal.say("Grace");
    assert_eq!(until_written(&bench.file("other")), "Grace");
}

#[test]
fn ctrl_z_does_not_stop_a_command_that_holds_a_lock() {
    let bench = Bench::new();
    let terminal = Terminal::open(&bench);
    terminal.run("k -- sh -c 'echo $$ > pid; sleep 1; sleep 1; exit 3'");
    let pid = until_written(&bench.file("pid"));
    let stat = |pid: &str| std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    until("it has the terminal", || {
        let stat = stat(&pid).unwrap();
        let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_ascii_whitespace().collect();
        fields[5] == pid
    });
    terminal.key("C-z");
    waits_for(&terminal, "it goes on");
    assert_eq!(terminal.code(), "3");
}
