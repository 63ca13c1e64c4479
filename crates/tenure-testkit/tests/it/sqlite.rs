//! The sqlite engine and the processes of a machine: what a death, a copy, a namespace and a full disk come to.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tenure::engine::sqlite::{Sqlite, url_of};
use tenure::engine::{Answer, Claim, Engine, Mode};
use tenure::{Background, ErrorKind, Key, Owner, Tenure};
use tenure_testkit::harness::{Harness as _, SqliteHarness};
use tenure_testkit::server::Process;

const KEY: &str = "a/key";
const LONG: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_secs(1);

fn folder() -> TempDir {
    tempfile::Builder::new().prefix("tenure-hold-").tempdir().unwrap()
}

/// A worker, perhaps inside of something else.
fn worker(around: &[&str], task: &str, url: &str, folder: &Path) -> Process {
    let mut words = around.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    words.extend([env!("CARGO_BIN_EXE_tenure-worker"), task, url, KEY].map(str::to_owned));
    words.extend([folder.to_str().unwrap().to_owned(), LONG.as_millis().to_string()]);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    Process::start(command, &folder.join("log")).unwrap()
}

fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap_or_default()
}

async fn until(what: &str, limit: Duration, mut there: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !there().await {
        assert!(begun.elapsed() < limit, "{what} did not come within {limit:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn held(folder: &Path) {
    let marker = folder.join("held");
    let there = async || {
        assert!(!log(folder).contains("Error"), "{}", log(folder));
        marker.exists()
    };
    until("the worker's hold", Duration::from_secs(10), there).await;
}

/// Whether this machine lets us make namespaces. None without, unless everything is required.
fn namespaces() -> bool {
    let tried =
        Command::new("unshare").args(["-rm", "--pid", "--fork", "true"]).stderr(Stdio::null()).status();
    if tried.is_ok_and(|status| status.success()) {
        return true;
    }
    let required = std::env::var_os("TENURE_REQUIRE_ALL").is_some_and(|value| value != "0");
    assert!(!required, "namespaces cannot be made here (unshare)");
    eprintln!("not run: namespaces cannot be made here (unshare)");
    false
}

/// After `kill -9` a waiter has the lock at once, and so has one who comes later; of the dead nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_is_followed_at_once() {
    for waits in [true, false] {
        let (file, marks) = (SqliteHarness::default(), folder());
        let holder = worker(&[], "hold", &file.url(), marks.path());
        held(marks.path()).await;
        let tenure = file.tenure().await;
        let lock = tenure.mutex(KEY).ttl(LONG);
        assert!(lock.try_acquire().await.unwrap().is_none(), "it is held");
        let next = match waits {
            true => {
                let waits = lock.clone();
                let waiting = tokio::spawn(async move { waits.acquire().await.unwrap() });
                let key = Key::new(KEY).unwrap();
                until("the place", SOON, async || {
                    tenure.engine().look(&key).await.unwrap().waiters.len() == 1
                })
                .await;
                let killed = Instant::now();
                drop(holder);
                let next = tokio::time::timeout(SOON, waiting).await.expect("at once").unwrap();
                println!("followed after {:?}", killed.elapsed());
                next
            }
            false => {
                drop(holder);
                lock.try_acquire().await.unwrap().expect("it is free")
            }
        };
        let before: u64 = std::fs::read_to_string(marks.path().join("held")).unwrap().parse().unwrap();
        assert!(next.token().get() > before, "{} after {before}", next.token());
        next.release().await.unwrap();
        drop(lock);
        tenure.close().await.unwrap();
        assert_eq!(file.files(), ["locks.sqlite"]);
    }
}

/// A copy of the liveness in another process keeps the holds of a client that has gone; its end frees them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copied_liveness_keeps_the_hold() {
    let file = SqliteHarness::default();
    let background = Background::threads().unwrap();
    let engine = Sqlite::at(file.path(), &background).await.unwrap();
    let claim = Claim {
        key: Key::new(KEY).unwrap(),
        owner: Owner::from_id(7),
        mode: Mode::Exclusive,
        term: LONG,
        value: Vec::new(),
        join: false,
    };
    assert!(matches!(engine.claim(&claim).await, Ok(Answer::Granted(_))));
    let copy = engine.liveness().as_fd().try_clone_to_owned().unwrap();
    let mut child = Command::new("sleep").arg("60").stdin(Stdio::from(copy)).spawn().unwrap();
    drop(engine);
    let tenure = file.tenure().await;
    let lock = tenure.mutex(KEY).ttl(LONG);
    for _ in 0..5 {
        assert!(lock.try_acquire().await.unwrap().is_none(), "the copy lives");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("the place", SOON, async || tenure.engine().look(&claim.key).await.unwrap().waiters.len() == 1)
        .await;
    child.kill().unwrap();
    child.wait().unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.expect("at once").unwrap();
    next.release().await.unwrap();
    tenure.close().await.unwrap();
    assert_eq!(file.files(), ["locks.sqlite"]);
}

/// Two pid namespaces that share a folder exclude each other, and see each other's deaths.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pid_namespaces_share_a_folder() {
    if !namespaces() {
        return;
    }
    let apart = ["unshare", "-r", "--pid", "--fork", "--kill-child"];
    let (file, one, two) = (SqliteHarness::default(), folder(), folder());
    let first = worker(&apart, "hold", &file.url(), one.path());
    held(one.path()).await;
    let _second = worker(&apart, "hold", &file.url(), two.path());
    let (tenure, key) = (file.tenure().await, Key::new(KEY).unwrap());
    until("the place", Duration::from_secs(10), async || {
        tenure.engine().look(&key).await.unwrap().waiters.len() == 1
    })
    .await;
    assert!(!two.path().join("held").exists(), "both are in");
    let host = tenure.engine().look(&key).await.unwrap().holders[0].host.clone().unwrap();
    assert!(host.starts_with("1@"), "not in a namespace of its own: {host}");
    drop(first);
    until("the other's hold", SOON, async || two.path().join("held").exists()).await;
}

/// A thousand short lives leave nothing but the database.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_clients_leave_no_file() {
    let file = SqliteHarness::default();
    let begun = Instant::now();
    for number in 0..1000 {
        let tenure = file.tenure().await;
        let lease = tenure.mutex(format!("short/{}", number % 7)).ttl(LONG).acquire().await.unwrap();
        lease.release().await.unwrap();
        tenure.close().await.unwrap();
    }
    println!("a thousand clients in {:?}", begun.elapsed());
    assert_eq!(file.files(), ["locks.sqlite"]);
}

/// A small disk of its own, in a namespace of its own, with a worker on it.
fn on_a_small_disk(script: &str, task: &str, disk: &Path, url: &str, folder: &Path) -> Process {
    let script = format!("mount -t tmpfs -o size=1m tenure \"$0\" && {script} exec \"$@\"");
    worker(&["unshare", "-rm", "sh", "-c", &script, disk.to_str().unwrap()], task, url, folder)
}

async fn ended(process: &mut Process) -> bool {
    let mut status = None;
    until("the worker's end", LONG, async || {
        status = process.ended().unwrap();
        status.is_some()
    })
    .await;
    status.unwrap().success()
}

/// On a full disk requests fail and say why; a holder is not confused; with room again all goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_told() {
    if !namespaces() {
        return;
    }
    // The worker writes its filler into the folder it is given: that is the small disk.
    let (disk, marks) = (folder(), folder());
    let url = url_of(&disk.path().join("locks.sqlite"));
    let script = format!("mount -t tmpfs -o size=1m tenure \"{}\" && exec \"$@\"", disk.path().display());
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-c", &script, "sh", env!("CARGO_BIN_EXE_tenure-worker"), "full"]);
    command.arg(url).arg(KEY).arg(disk.path()).arg("1500");
    let mut process = Process::start(command, &marks.path().join("log")).unwrap();
    let success = ended(&mut process).await;
    let log = log(marks.path());
    println!("{log}");
    assert!(success, "{log}");
    assert!(log.contains("refused: Unavailable") && log.contains("full") && log.contains("again"), "{log}");
}

/// A disk that cannot be written is told at connect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_disk_is_told() {
    if !namespaces() {
        return;
    }
    let (disk, marks) = (folder(), folder());
    let url = url_of(&disk.path().join("locks.sqlite"));
    // An empty disk, and one with a database that was made before.
    for script in
        ["mount -o remount,ro \"$0\" &&", "\"$@\" & sleep 1; kill -9 $!; mount -o remount,ro \"$0\" &&"]
    {
        let mut process = on_a_small_disk(script, "hold", disk.path(), &url, marks.path());
        assert!(!ended(&mut process).await, "it worked on a disk that cannot be written");
        let log = log(marks.path());
        assert!(log.contains("Denied") && log.contains("write access"), "{log}");
        std::fs::write(marks.path().join("log"), "").unwrap();
    }
}

/// A folder, a missing folder, a file of another kind, of another program, of a newer version: each is refused
/// with its reason and left alone.
#[tokio::test]
async fn what_is_no_database_of_ours_is_refused_and_left_alone() {
    let folder = folder();
    let place = |name: &str| folder.path().join(name);
    std::fs::write(
        place("text"),
        "important, and no database at all, for it is longer than a head ".repeat(20),
    )
    .unwrap();
    std::fs::create_dir(place("folder")).unwrap();
    let made = rusqlite::Connection::open(place("other")).unwrap();
    made.execute_batch("CREATE TABLE people (name TEXT); INSERT INTO people VALUES ('Ada')").unwrap();
    drop(made);
    connect(&place("ours")).await.unwrap().close().await.unwrap();
    std::fs::copy(place("ours"), place("newer")).unwrap();
    rusqlite::Connection::open(place("newer")).unwrap().pragma_update(None, "user_version", 2).unwrap();
    std::fs::copy(place("ours"), place("twice")).unwrap();
    std::fs::hard_link(place("twice"), place("again")).unwrap();
    for (name, kind, part) in [
        ("text", ErrorKind::Invalid, "no SQLite database"),
        ("folder", ErrorKind::Invalid, "is a folder"),
        ("missing/locks", ErrorKind::Invalid, "there is no folder"),
        ("other", ErrorKind::Invalid, "another program"),
        ("newer", ErrorKind::Unsupported, "version 2"),
        ("twice", ErrorKind::Unsupported, "hard links"),
    ] {
        let before = std::fs::read(place(name)).ok();
        let error = connect(&place(name)).await.expect_err(name);
        assert_eq!(error.kind(), kind, "{name}: {error}");
        let text = error.to_string();
        assert!(text.starts_with("connect on sqlite: ") && text.contains(part), "{name}: {text}");
        assert!(!error.may_have_taken_effect(), "{name}: {text}");
        assert_eq!(std::fs::read(place(name)).ok(), before, "{name} was changed");
    }
}

async fn connect(path: &Path) -> tenure::Result<Tenure> {
    tenure::connect(url_of(path)).await
}

/// Names that lead to one file are one store.
#[tokio::test]
async fn symbolic_links_lead_to_the_same_store() {
    let folder = folder();
    let (real, link): (PathBuf, PathBuf) = (folder.path().join("real"), folder.path().join("link"));
    // Before there is a file, too.
    std::os::unix::fs::symlink("real", &link).unwrap();
    let (one, two) = (connect(&link).await.unwrap(), connect(&real).await.unwrap());
    let lease = one.mutex(KEY).ttl(LONG).acquire().await.unwrap();
    assert!(two.mutex(KEY).ttl(LONG).try_acquire().await.unwrap().is_none());
    let lock = two.mutex(KEY).ttl(LONG);
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("the place", SOON, async || one.engine().look(lease.key()).await.unwrap().waiters.len() == 1).await;
    lease.release().await.unwrap();
    let next = tokio::time::timeout(SOON, waiting).await.expect("told").unwrap();
    next.release().await.unwrap();
}
