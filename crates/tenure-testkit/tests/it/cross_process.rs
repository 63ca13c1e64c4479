//! Processes that are killed and stopped while they work under a lock.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::seq::IndexedRandom;
use tempfile::TempDir;
use tenure_testkit::harness::{Harness as _, SqliteHarness};
use tenure_testkit::register::{Counter, Register};
use tenure_testkit::server::{Process, RedisOptions, RedisServer};

const WORKERS: usize = 16;
const TERM: Duration = Duration::from_millis(1000);

/// Worker processes and the folder they work in.
struct Crew {
    task: &'static str,
    url: String,
    folder: TempDir,
    workers: Vec<Process>,
    killed: BTreeSet<u32>,
}

impl Crew {
    fn new(task: &'static str, url: String, workers: usize) -> Crew {
        let folder = tempfile::Builder::new().prefix("tenure-crew-").tempdir().unwrap();
        let mut crew = Crew { task, url, folder, workers: Vec::new(), killed: BTreeSet::new() };
        for _ in 0..workers {
            let worker = crew.worker();
            crew.workers.push(worker);
        }
        crew
    }

    fn worker(&self) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure-worker"));
        let term = TERM.as_millis().to_string();
        command.args([self.task, &self.url, "cross/process"]).arg(self.folder()).arg(term);
        Process::start(command, &self.folder().join("log")).unwrap()
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// SIGKILL, and another one in its place.
    fn replace(&mut self, index: usize) {
        self.killed.insert(self.workers[index].id());
        let fresh = self.worker();
        drop(std::mem::replace(&mut self.workers[index], fresh));
    }

    fn any(&self) -> usize {
        rand::rng().random_range(0..self.workers.len())
    }

    /// The one that said last that it holds the lock.
    fn holder(&self) -> Option<usize> {
        let id: u32 = std::fs::read_to_string(self.folder().join("holder")).ok()?.parse().ok()?;
        self.workers.iter().position(|worker| worker.id() == id)
    }

    /// Lets everybody end by itself, and well.
    fn stop(&mut self) {
        std::fs::write(self.folder().join("stop"), "").unwrap();
        let begun = Instant::now();
        for worker in &mut self.workers {
            let status = loop {
                if let Some(status) = worker.ended().unwrap() {
                    break status;
                }
                assert!(begun.elapsed() < Duration::from_secs(20), "a worker does not end");
                std::thread::sleep(Duration::from_millis(10));
            };
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
            assert!(status.success(), "a worker ended with {status}:\n{log}");
        }
    }

    /// What the journals say: for each number, who meant to write it and who did.
    fn journals(&self) -> (BTreeMap<u64, Vec<u32>>, BTreeMap<u64, Vec<u32>>) {
        let (mut intents, mut done) = (BTreeMap::<u64, Vec<u32>>::new(), BTreeMap::<u64, Vec<u32>>::new());
        for entry in std::fs::read_dir(self.folder()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let Some(id) = name.strip_prefix("journal-") else { continue };
            let id: u32 = id.parse().unwrap();
            for line in std::fs::read_to_string(&path).unwrap().lines() {
                let (what, number) = line.split_once(' ').unwrap();
                let number = number.parse().unwrap();
                match what {
                    "intent" => intents.entry(number).or_default().push(id),
                    "done" => done.entry(number).or_default().push(id),
                    _ => {}
                }
            }
        }
        (intents, done)
    }
}

/// Why additions were lost; empty if none was.
fn lost_additions(crew: &Crew) -> Vec<String> {
    let total = Counter::within(crew.folder()).read().unwrap();
    let (intents, done) = crew.journals();
    let mut complaints = Vec::new();
    for number in 1..=total {
        match done.get(&number).map_or(0, Vec::len) {
            1 => {}
            // Whoever wrote it was killed before it could say so.
            0 if intents.get(&number).is_some_and(|ids| ids.iter().any(|id| crew.killed.contains(id))) => {}
            times => complaints.push(format!("{number} was written {times} times")),
        }
    }
    complaints
        .extend(done.range(total + 1..).map(|(number, _)| format!("{number} was overwritten by {total}")));
    complaints
}

/// Kills for nine seconds; then nothing is lost.
fn kill_and_count(url: String) {
    let mut crew = Crew::new("counter", url, WORKERS);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(9) {
        std::thread::sleep(Duration::from_millis(rand::rng().random_range(20..120)));
        let index = crew.any();
        crew.replace(index);
    }
    crew.stop();
    let complaints = lost_additions(&crew);
    assert!(complaints.is_empty(), "{complaints:#?}");
    let total = Counter::within(crew.folder()).read().unwrap();
    println!("{total} additions, {} kills", crew.killed.len());
    assert!(total > 100, "only {total} additions");
}

#[test]
fn killed_processes_lose_no_addition() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    kill_and_count(format!("redis://{}", server.address()));
    let left = server.raw(0).unwrap().demand(&["GET", "cross/process"]).unwrap();
    assert_eq!(left, tenure_testkit::raw::Value::Nil);
}

#[test]
fn killed_processes_lose_no_addition_on_a_file() {
    let file = SqliteHarness::default();
    kill_and_count(file.url());
    // The killed ones have left files; the next client removes them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tenure = file.tenure().await;
        tenure.mutex("cross/process").acquire().await.unwrap().release().await.unwrap();
        tenure.close().await.unwrap();
    });
    assert_eq!(file.files(), ["locks.sqlite"]);
}

#[test]
fn without_a_lock_the_same_loses_additions() {
    let mut crew = Crew::new("counter-without-lock", String::new(), 4);
    std::thread::sleep(Duration::from_secs(1));
    crew.stop();
    assert!(!lost_additions(&crew).is_empty(), "the check would not notice that exclusion failed");
}

#[test]
fn stopped_processes_do_not_turn_a_fenced_register_back() {
    let server = RedisServer::start(RedisOptions::default()).unwrap();
    stop_and_fence(format!("redis://{}", server.address()));
}

#[test]
fn stopped_processes_do_not_turn_a_fenced_register_back_on_a_file() {
    let file = SqliteHarness::default();
    stop_and_fence(file.url());
}

/// Stops and kills for a while; then no stale write got through.
fn stop_and_fence(url: String) {
    let mut crew = Crew::new("register", url, WORKERS);
    let register = Register::within(crew.folder());
    let (begun, mut last) = (Instant::now(), register.read().unwrap());
    while begun.elapsed() < Duration::from_secs(14) {
        // Mostly the holder: the others have nothing to be stale with.
        let victim = crew.holder().filter(|_| rand::rng().random_bool(0.8)).unwrap_or_else(|| crew.any());
        let kill = *[true, false, false].choose(&mut rand::rng()).unwrap();
        if kill {
            crew.replace(victim);
        } else {
            crew.workers[victim].pause().unwrap();
            std::thread::sleep(TERM + Duration::from_millis(rand::rng().random_range(100..400)));
            crew.workers[victim].resume().unwrap();
        }
        std::thread::sleep(Duration::from_millis(rand::rng().random_range(20..200)));
        let now = register.read().unwrap();
        assert!(now.mark >= last.mark && now.value >= last.value, "it went back from {last:?} to {now:?}");
        last = now;
    }
    crew.stop();
    let end = register.read().unwrap();
    println!("{end:?}, {} kills", crew.killed.len());
    assert_eq!(end.value, end.accepted, "an accepted write was overwritten by a stale one");
    assert!(end.accepted > 50, "too little happened: {end:?}");
    assert!(end.refused > 0, "no stale write was tried: {end:?}");
}
