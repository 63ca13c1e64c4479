//! The guard: whatever becomes of `tenure`, the command is gone before its lock can be somebody else's.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;

use crate::support::{Bench, end_of, guard_of, kill, runs, tenure, until, until_written};

/// A job that takes no notice of TERM but writes down when it came, with a process in its group and one
/// that has left it. Each writes its number; the job goes on writing the time.
const STUBBORN: &str = "\
    setsid sh -c 'trap \"\" TERM; echo $$ > far; while :; do sleep 0.01; done' & \
    sh -c 'trap \"\" TERM; echo $$ > near; while :; do sleep 0.01; done' & \
    trap 'date +%s%N > asked' TERM; echo $$ > leader; \
    while :; do date +%s%N > beat; mv beat last; sleep 0.01; done";

struct Job([String; 3]);

impl Job {
    fn started(bench: &Bench) -> Job {
        Job(["leader", "near", "far"].map(|name| until_written(&bench.file(name))))
    }

    fn runs(&self) -> bool {
        self.0.iter().any(|pid| runs(pid))
    }
}

/// A time that a job wrote.
fn written(path: &Path) -> Duration {
    Duration::from_nanos(until_written(path).parse().unwrap())
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

#[test]
fn a_killed_tenure_takes_its_job_along_within_half_a_second() {
    let bench = Bench::new();
    let run = bench.run(&["k", "--", "sh", "-c", STUBBORN]);
    let job = Job::started(&bench);
    let guard = guard_of(&run);
    let killed = now();
    run.signal(Signal::KILL);
    until("the job is gone", || !job.runs());
    let gone = now();
    assert!(gone - killed < Duration::from_millis(500), "{:?}", gone - killed);
    let asked = written(&bench.file("asked"));
    assert!(asked - killed < Duration::from_millis(200), "{:?}", asked - killed);
    until("the guard is gone", || !runs(&guard));
}

/// On sqlite the next one does not wait for the term: it enters once nothing of the job is left, at once then.
#[test]
fn the_next_one_enters_after_the_job_of_a_killed_tenure_is_gone() {
    let bench = Bench::new();
    let url = format!("sqlite:{}", bench.file("locks.sqlite").display());
    let run = bench.run_on(&url, &["k", "--", "sh", "-c", STUBBORN]);
    let job = Job::started(&bench);
    let script =
        "date +%s%N > entered; for name in leader near far; do kill -0 $(cat $name) && echo $name; done";
    let next = bench.run_on(&url, &["k", "--", "sh", "-c", script]);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!bench.file("entered").exists());
    let killed = now();
    run.signal(Signal::KILL);
    until("the job is gone", || !job.runs());
    let gone = now();
    assert!(gone - killed < Duration::from_millis(500), "{:?}", gone - killed);
    let end = next.end();
    assert_eq!((end.code(), end.out.as_str()), (1, ""), "the job still ran: {end:?}");
    let entered = written(&bench.file("entered"));
    assert!(entered < gone + Duration::from_secs(1), "{:?} after the end", entered - gone);
    assert!(entered > written(&bench.file("last")));
}

#[test]
fn the_next_one_enters_after_the_job_of_a_stopped_tenure_is_gone() {
    let bench = Bench::new();
    let url = format!("sqlite:{}", bench.file("locks.sqlite").display());
    let run = bench.run_on(&url, &["--ttl", "3s", "k", "--", "sh", "-c", STUBBORN]);
    let job = Job::started(&bench);
    let script =
        "date +%s%N > entered; for name in leader near far; do kill -0 $(cat $name) && echo $name; done";
    let next = bench.run_on(&url, &["k", "--", "sh", "-c", script]);
    let stopped = now();
    run.signal(Signal::STOP);
    let end = next.end();
    assert_eq!((end.code(), end.out.as_str()), (1, ""), "the job still ran: {end:?}");
    assert!(!job.runs());
    let (last, entered) = (written(&bench.file("last")), written(&bench.file("entered")));
    assert!(last < entered, "it wrote {:?} after the next one had entered", last - entered);
    assert!(last - stopped < Duration::from_millis(2_940), "{:?}", last - stopped);
    run.signal(Signal::CONT);
    assert_eq!(run.end().code(), 76);
}

/// A job that ends when it is asked to is not killed.
#[test]
fn a_killed_tenure_lets_its_job_tidy_up() {
    let bench = Bench::new();
    let script = "trap 'sleep 0.1; echo > tidied; exit' TERM; echo $$ > leader; while :; do sleep 0.01; done";
    let run = bench.run(&["k", "--", "sh", "-c", script]);
    until_written(&bench.file("leader"));
    run.signal(Signal::KILL);
    until_written(&bench.file("tidied"));
}

#[test]
fn a_stopped_tenure_keeps_no_job_past_its_validity() {
    let bench = Bench::new();
    let run = bench.run(&["--ttl", "3s", "--grace", "500ms", "k", "--", "sh", "-c", STUBBORN]);
    let job = Job::started(&bench);
    let stopped = now();
    run.signal(Signal::STOP);
    until("the job is gone", || !job.runs());
    assert_eq!(bench.ask(&["EXISTS", "k"]).int(), Some(1), "the lock was free before the job had ended");
    // It was asked a grace before, and wrote until it was killed.
    let (asked, last) = (written(&bench.file("asked")), written(&bench.file("last")));
    assert!(last - asked > Duration::from_millis(300), "{:?}", last - asked);
    assert!(last - stopped < Duration::from_millis(2_940), "{:?}", last - stopped);
    run.signal(Signal::CONT);
    let end = run.end();
    assert_eq!(end.code(), 76, "{}", end.err);
    assert!(end.err.contains("lost \"k\""), "{}", end.err);
}

#[test]
fn a_stop_that_is_shorter_than_the_term_costs_nothing() {
    let bench = Bench::new();
    let run = bench.run(&["--ttl", "3s", "k", "--", "sh", "-c", "echo $$ > leader; sleep 2; exit 3"]);
    until_written(&bench.file("leader"));
    run.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(1));
    run.signal(Signal::CONT);
    let end = run.end();
    assert_eq!(end.code(), 3, "{}", end.err);
}

#[test]
fn a_lost_key_ends_the_whole_family() {
    let bench = Bench::new();
    let run = bench.run(&["--ttl", "3s", "--grace", "300ms", "k", "--", "sh", "-c", STUBBORN]);
    let job = Job::started(&bench);
    let taken = Instant::now();
    bench.ask(&["SET", "k", "somebody else", "PX", "60000"]);
    let end = run.end();
    assert!(!job.runs());
    assert_eq!(end.code(), 76, "{}", end.err);
    assert!(taken.elapsed() < Duration::from_secs(3), "{:?}", taken.elapsed());
}

#[test]
fn what_a_job_leaves_in_its_group_ends_before_the_lock_is_released() {
    let bench = Bench::new();
    let script = "\
        setsid sh -c 'echo $$ > far; exec sleep 60' & \
        sh -c 'trap \"\" TERM; echo $$ > near; while :; do sleep 0.01; done' & \
        while ! [ -s near ] || ! [ -s far ]; do sleep 0.01; done; exit 7";
    let run = bench.run(&["--grace", "400ms", "k", "--", "sh", "-c", script]);
    let (near, far) = (until_written(&bench.file("near")), until_written(&bench.file("far")));
    until("the lock is released", || {
        let held = bench.ask(&["EXISTS", "k"]).int() == Some(1);
        assert!(held || !runs(&near), "released before the job had ended");
        !held
    });
    assert_eq!(run.end().code(), 7);
    assert!(runs(&far), "who leaves the group on purpose is left alone");
    kill(&far, Signal::KILL);
}

#[test]
fn a_killed_guard_ends_the_job_and_is_told() {
    let bench = Bench::new();
    let run = bench.run(&["k", "--", "sh", "-c", STUBBORN]);
    let job = Job::started(&bench);
    kill(&guard_of(&run), Signal::KILL);
    let end = run.end();
    assert!(!job.runs());
    assert_eq!(end.code(), 70, "{}", end.err);
    assert!(end.err.contains("guards the command"), "{}", end.err);
    assert_eq!(bench.traces(), [""; 0]);
}

/// A guard that stands still does not keep the job alive past a loss.
#[test]
fn a_stopped_guard_is_relieved_in_time() {
    let bench = Bench::new();
    let run = bench.run(&["--ttl", "2s", "k", "--", "sh", "-c", STUBBORN]);
    let job = Job::started(&bench);
    kill(&guard_of(&run), Signal::STOP);
    bench.server.pause().unwrap();
    let paused = Instant::now();
    until("the job is gone", || !job.runs());
    assert!(paused.elapsed() < Duration::from_secs(2), "{:?}", paused.elapsed());
    bench.server.resume().unwrap();
    let end = run.end();
    assert_eq!(end.code(), 76, "{}", end.err);
}

/// A guard that was stopped for no reason goes on, so the command's end is seen.
#[test]
fn a_stopped_guard_goes_on() {
    let bench = Bench::new();
    let script = "echo $$ > started; sleep 0.3; exit 5";
    let run = bench.run(&["--ttl", "2s", "k", "--", "sh", "-c", script]);
    until_written(&bench.file("started"));
    kill(&guard_of(&run), Signal::STOP);
    assert_eq!(run.end().code(), 5);
    assert_eq!(bench.traces(), [""; 0]);
}

/// The command never sees what only the guard has.
#[test]
fn the_command_inherits_no_open_file() {
    let bench = Bench::new();
    let list = ["sh", "-c", "ls /proc/$$/fd"];
    let mut command = std::process::Command::new(list[0]);
    command.args(&list[1..]);
    let alone = end_of(command);
    let end = bench.run(&[&["k", "--"][..], &list].concat()).end();
    assert_eq!(end.out, alone.out, "{}", end.err);
}

#[test]
fn nobody_else_can_be_a_guard() {
    let end = end_of(tenure(&["guard--", "--", "echo", "ran"]));
    assert_eq!((end.code(), end.out.as_str()), (70, ""), "{}", end.err);
}

/// Nothing piles up: no process, no key, no file.
#[test]
fn a_thousand_short_runs_leave_nothing_behind() {
    let bench = Bench::new();
    let state = tempfile::TempDir::new().unwrap();
    let urls = [bench.url(), format!("sqlite:{}/locks.sqlite", state.path().display())];
    std::thread::scope(|scope| {
        for worker in 0..8 {
            let (bench, urls) = (&bench, &urls);
            scope.spawn(move || {
                for round in 0..125 {
                    let words = [&format!("k{worker}"), "--", "true"];
                    let end = bench.run_on(&urls[round % 2], &words).end();
                    assert_eq!((end.code(), end.err.as_str()), (0, ""));
                }
            });
        }
    });
    assert_eq!(bench.traces(), [""; 0]);
    assert_eq!(std::fs::read_dir(bench.file(".")).unwrap().count(), 0);
    let clients = state.path().join("locks.sqlite.clients");
    assert_eq!(std::fs::read_dir(clients).unwrap().count(), 0, "the file of a client is left");
    let folder = std::fs::canonicalize(bench.file(".")).unwrap();
    let left = std::fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter(|entry| std::fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder));
    assert_eq!(left.count(), 0, "a process is left");
}
