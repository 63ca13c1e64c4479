//! A process that works under a lock until a file named `stop` appears, or until it is killed.
//!
//! `tenure-worker TASK URL KEY FOLDER TERM_MS`, where `TASK` is `counter`, `counter-without-lock`,
//! `register`, `hold` or `full`.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::Rng;
use tenure::{Lease, Mutex, Tenure};
use tenure_testkit::register::{Counter, Journal, Register};

type Outcome = Result<(), Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [task, url, key, folder, term] = &arguments[..] else {
        return Err("usage: tenure-worker TASK URL KEY FOLDER TERM_MS".into());
    };
    let folder = PathBuf::from(folder);
    if task == "counter-without-lock" {
        return without_lock(&folder).await;
    }
    let tenure = tenure::connect(url).await?;
    let lock = tenure.mutex(key).ttl(Duration::from_millis(term.parse()?));
    match task.as_str() {
        "counter" => count(&lock, &folder).await?,
        "register" => register(&lock, &folder).await?,
        "hold" => hold(&lock, &folder).await?,
        "full" => full(&tenure, &lock, &folder).await?,
        other => return Err(format!("unknown task {other}").into()),
    }
    drop(lock);
    tenure.close().await?;
    Ok(())
}

fn stopped(folder: &Path) -> bool {
    folder.join("stop").exists()
}

fn journal(folder: &Path) -> std::io::Result<Journal> {
    Journal::open(&folder.join(format!("journal-{}", std::process::id())))
}

async fn count(lock: &Mutex, folder: &Path) -> Outcome {
    let mut journal = journal(folder)?;
    while !stopped(folder) {
        let lease = lock.acquire().await?;
        let held = || lease.is_held();
        add_one(folder, &mut journal, held).await?;
        lease.release().await?;
    }
    Ok(())
}

async fn without_lock(folder: &Path) -> Outcome {
    let mut journal = journal(folder)?;
    while !stopped(folder) {
        add_one(folder, &mut journal, || true).await?;
    }
    Ok(())
}

/// Reads, waits, writes: whoever does the same meanwhile is lost.
async fn add_one(folder: &Path, journal: &mut Journal, held: impl Fn() -> bool) -> Outcome {
    let counter = Counter::within(folder);
    let next = counter.read()? + 1;
    pause(0..2_000).await;
    journal.note(&format!("intent {next}"))?;
    if !held() {
        journal.note(&format!("lost {next}"))?;
        return Ok(());
    }
    counter.write(next)?;
    journal.note(&format!("done {next}"))?;
    Ok(())
}

async fn register(lock: &Mutex, folder: &Path) -> Outcome {
    let register = Register::within(folder);
    while !stopped(folder) {
        let lease = lock.acquire().await?;
        under(&lease, &register, folder).await?;
        lease.release().await?;
    }
    Ok(())
}

/// Enters the fence, waits, and writes without asking whether the lease is still held: that is what a
/// process does that is stopped at the wrong moment.
async fn under(lease: &Lease, register: &Register, folder: &Path) -> Outcome {
    let token = lease.token().get();
    let Some(value) = register.enter(token)? else { return Ok(()) };
    std::fs::write(folder.join("holder"), std::process::id().to_string())?;
    pause(10_000..30_000).await;
    register.write(token, value + 1)?;
    Ok(())
}

/// Holds it once, and says so by a file `held`, until it is stopped or killed.
async fn hold(lock: &Mutex, folder: &Path) -> Outcome {
    let lease = lock.acquire().await?;
    std::fs::write(folder.join("held"), lease.token().to_string())?;
    while !stopped(folder) {
        pause(5_000..10_000).await;
    }
    lease.release().await?;
    Ok(())
}

/// Fills the disk that the folder is on, while it holds the lock: what fails says so, what is held is either
/// kept or told as lost, and once there is room again all is as before.
async fn full(tenure: &Tenure, lock: &Mutex, folder: &Path) -> Outcome {
    let lease = lock.acquire().await?;
    let filler = folder.join("filler");
    let mut file = std::fs::File::create(&filler)?;
    let block = [1; 4096];
    while std::io::Write::write_all(&mut file, &block).is_ok() {}
    let error = loop {
        let another = format!("full/{}", rand::rng().random::<u64>());
        let value = vec![1; tenure::MAX_VALUE_BYTES];
        match tenure.mutex(another).value(value).try_acquire().await {
            // Room that was in the log already.
            Ok(lease) => std::mem::forget(lease),
            Err(error) => break error,
        }
    };
    println!("refused: {error:?}");
    if error.may_have_taken_effect() {
        return Err("nothing can have taken effect on a full disk".into());
    }
    // Two terms: renewals fail, or find room in the log.
    let lost = tokio::time::timeout(lease.remaining() * 2, lease.lost()).await.is_ok();
    let still = lease.is_held();
    println!("held: {still}, lost: {lost}");
    if still == lost {
        return Err("held and lost at once".into());
    }
    drop(file);
    std::fs::remove_file(filler)?;
    drop(lease);
    tokio::time::timeout(Duration::from_secs(10), lock.acquire()).await??.release().await?;
    println!("again");
    Ok(())
}

async fn pause(micros: std::ops::Range<u64>) {
    let micros = rand::rng().random_range(micros);
    tokio::time::sleep(Duration::from_micros(micros)).await;
}
