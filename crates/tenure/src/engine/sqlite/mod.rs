//! A file, shared by the processes of one machine. No server.
//!
//! Holds and queues are rows of a SQLite database; what is asked at the same time is one transaction. A
//! release hands the key to the head of the queue and tells it through a pipe. Beside its term a hold hangs
//! on the life of its client's process, by a lock of `flock(2)` that the kernel lets go of when that ends. See
//! `docs/engines/sqlite.md`.

mod clients;
mod clock;
mod database;
mod failure;
mod flight;
mod options;
mod queue;
mod rows;
#[cfg(test)]
mod tests;
mod wakes;
mod worker;

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use self::clients::Folder;
use self::clock::{Boot, StoreClock};
use self::database::Database;
use self::failure::{Step, explain_io};
use self::flight::{Claimed, Flight, Kept, Me, Seen, Swept, Way};
use self::options::Options;
pub use self::options::url_of;
use self::queue::Queue;
use self::wakes::Wakes;
use self::worker::Worker;
use super::{Answer, Busy, Claim, Cursor, Engine, Page, Record, Released, Renewed, Stake, View, Wake, Woken};
use crate::background::Background;
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::promises::{Promises, Wakes as Told};
use crate::time::check_term;

const ENGINE: &str = "sqlite";
const SHORTEST_TERM: Duration = Duration::from_millis(100);
const LONGEST_TERM: Duration = Duration::from_secs(30 * 24 * 3600);
/// Clients that may wait for one key.
const LONGEST_QUEUE: usize = 4096;
/// How long a request waits for the database: only others that write hold it up.
const LIMIT: Duration = Duration::from_secs(2);
/// How long a renewal waits. It can be repeated at any time.
const RENEWAL_LIMIT: Duration = Duration::from_millis(500);
/// How often a look is worth repeating.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long dropping a client waits for its thread.
const LEAVING: Duration = Duration::from_millis(500);

/// Opens the file of a URL: `sqlite:PATH` or `sqlite:///PATH`, with `?max_ttl=…`. `%` in the path begins a
/// percent-encoded byte; [`url_of`] writes such a URL. `ttl=…` is left to [`connect`](crate::connect).
///
/// # Errors
/// `Invalid` for a bad URL, a folder, or a file of something else; `Denied` if file or folder cannot be
/// written; `Unsupported` on a network file system, or for a file of a newer version; `Unavailable` if the
/// disk is full or fails.
pub async fn open(url: &str, background: &Background) -> Result<Arc<dyn Engine>> {
    let options = Options::from_url(url).map_err(named("connect"))?;
    Ok(Arc::new(Sqlite::start(options, background).await?))
}

/// The engine for one file.
pub struct Sqlite {
    path: PathBuf,
    longest_term: Duration,
    queue: Arc<Queue>,
    wakes: Arc<Wakes>,
    background: Background,
    /// `None` only while it is dropped.
    liveness: Option<OwnedFd>,
    /// Ends with the thread at the database.
    ended: Mutex<mpsc::Receiver<()>>,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("path", &self.path).finish_non_exhaustive()
    }
}

/// What opening comes to.
struct Opened {
    path: PathBuf,
    queue: Arc<Queue>,
    wakes: Arc<Wakes>,
    liveness: OwnedFd,
}

impl Sqlite {
    /// Opens a file, or makes it.
    ///
    /// # Errors
    /// As [`open`], without those about URLs.
    pub async fn at(path: impl AsRef<Path>, background: &Background) -> Result<Sqlite> {
        let path = path.as_ref().to_owned();
        Sqlite::start(Options { path, longest_term: LONGEST_TERM }, background).await
    }

    async fn start(options: Options, background: &Background) -> Result<Sqlite> {
        let boot = Boot::current().map_err(named("connect"))?;
        Sqlite::start_in(boot, options, background).await
    }

    /// As if the machine had been started as `boot`.
    async fn start_in(boot: Boot, options: Options, background: &Background) -> Result<Sqlite> {
        let Options { path, longest_term } = options;
        let (opened, answer) = oneshot::channel();
        let (ends, ended) = mpsc::channel::<()>();
        let clock = StoreClock::new(background);
        let ids = background.clone();
        let work = move || {
            let _ends = ends;
            match prepare(&path, boot, clock, &ids) {
                Ok((worker, ready)) => {
                    // The clocks and random numbers of a client end with it.
                    drop(ids);
                    if opened.send(Ok(ready)).is_ok() {
                        worker.run();
                    }
                }
                Err(error) => drop(opened.send(Err(error))),
            }
        };
        std::thread::Builder::new().name("tenure-sqlite".to_owned()).spawn(work).map_err(|error| {
            named("connect")(
                Error::new(ErrorKind::Internal, "a thread could not be started").source_error(error),
            )
        })?;
        let no_answer = |_| Err(Error::new(ErrorKind::Internal, "the thread at the database ended"));
        let opened = answer.await.unwrap_or_else(no_answer).map_err(named("connect"))?;
        let Opened { path, queue, wakes, liveness } = opened;
        let (background, liveness, ended) = (background.clone(), Some(liveness), Mutex::new(ended));
        Ok(Sqlite { path, longest_term, queue, wakes, background, liveness, ended })
    }

    /// The open file on which the life of this client rests.
    ///
    /// A copy of it that another process inherits keeps the client's holds, within their terms, until every
    /// copy is closed; then all of them are free at once. It is closed on `exec` unless that is changed on
    /// the copy.
    ///
    /// # Panics
    /// Never: it is there as long as the engine.
    pub fn liveness(&self) -> BorrowedFd<'_> {
        self.liveness.as_ref().map(AsFd::as_fd).expect("it is taken only by dropping")
    }

    /// The file, as all who use it find it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Asks the database's thread. Dropping the future takes nothing back.
    async fn ask<T: Send + 'static>(
        &self,
        work: impl FnMut(&mut Flight<'_>) -> Step<T> + Send + 'static,
    ) -> Result<T> {
        let timer = patience(self.background.requests(), LIMIT);
        self.ask_within(LIMIT, timer, false, work).await
    }

    async fn ask_within<T: Send + 'static>(
        &self,
        limit: Duration,
        timer: impl Future<Output = ()>,
        first: bool,
        work: impl FnMut(&mut Flight<'_>) -> Step<T> + Send + 'static,
    ) -> Result<T> {
        let asked = self.queue.ask(first, work)?;
        let answer = tokio::select! {
            biased;
            answer = asked.answer => Ok(answer),
            () = timer => Err(()),
        };
        match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) if asked.stage.was_begun() => {
                Err(Error::new(ErrorKind::Internal, "the thread at the database failed").maybe())
            }
            Ok(Err(_)) => Err(Error::new(ErrorKind::Closed, "the client was closed")),
            Err(()) => {
                let what = format!("{} could not be written for {limit:?}", self.path.display());
                let error = Error::new(ErrorKind::Unavailable, what)
                    .advice("look for a process that is stopped in the middle of a write, or a slow disk");
                Err(if asked.stage.abandon() { error } else { error.maybe() })
            }
        }
    }

    fn busy(&self, way: Way, wake: Wake) -> Busy {
        Busy { ahead: way.ahead, wake, ask_within: way.ask_within, holder: way.holder }
    }

    async fn claim_inner(&self, claim: &Claim) -> Result<Answer> {
        check_term(claim.term, &self.promises())?;
        let mailbox =
            match claim.join {
                false => None,
                true => Some(self.wakes.register(&claim.key, claim.owner).map_err(|error| {
                    explain_io(error, "no pipe for wakes can be made beside", &self.path)
                })?),
            };
        let (asks, owner, queue) = (claim.clone(), claim.owner, self.queue.clone());
        let work = move |flight: &mut Flight<'_>| {
            queue.refuse_if_leaving()?;
            flight.claim(&asks)
        };
        match self.ask(work).await? {
            Claimed::Granted(grant) => {
                // Whatever was told of an earlier hold is out of date.
                self.wakes.forget(owner);
                Ok(Answer::Granted(grant))
            }
            Claimed::Busy(mut way) => {
                self.wakes.watch(owner, std::mem::take(&mut way.before));
                let waits = way.ahead.is_some();
                let wake = mailbox.filter(|_| waits).map_or_else(Wake::never, wakes::Mailbox::into_wake);
                Ok(Answer::Busy(self.busy(way, wake)))
            }
        }
    }

    fn renewed(&self, stake: &Stake, kept: Kept) -> Renewed {
        match kept {
            Kept::Holds(term) => Renewed::Kept(term),
            Kept::Waits(mut way) => {
                self.wakes.watch(stake.owner, std::mem::take(&mut way.before));
                Renewed::Waiting(self.busy(way, Wake::never()))
            }
            Kept::Lost => {
                self.wakes.forget(stake.owner);
                Renewed::Lost
            }
        }
    }
}

/// Opens everything, on the thread that will work with it.
fn prepare(path: &Path, boot: Boot, clock: StoreClock, background: &Background) -> Result<(Worker, Opened)> {
    let database = Database::open(path, &boot)?;
    let folder = Folder::of(&database.path);
    let beside = |error| explain_io(error, "no files of clients can be made beside", &database.path);
    folder.make().map_err(beside)?;
    let turnstile = folder.turnstile().map_err(beside)?;
    let (id, liveness) = folder.register(background).map_err(beside)?;
    let host = format!("{}@{}", std::process::id(), rustix::system::uname().nodename().to_string_lossy());
    let me = Arc::new(Me { id, folder, host, boot });
    let queue = Arc::new(Queue::default());
    let wakes = Arc::new(Wakes::new(me.clone(), queue.clone()));
    let opened = Opened { path: database.path.clone(), queue: queue.clone(), wakes: wakes.clone(), liveness };
    let worker = Worker { queue, wakes, me, clock, database, turnstile, swept: Swept::default(), flights: 0 };
    Ok((worker, opened))
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.queue.leave();
        // From here on the client is dead for all others, unless a copy lives.
        self.liveness = None;
        self.wakes.close();
        self.queue.close();
        // What the program leaves behind when it ends before that is removed by the next client.
        let _ = self.ended.get_mut().unwrap_or_else(PoisonError::into_inner).recv_timeout(LEAVING);
    }
}

/// Is over after `limit`, by a timer of one of the client's own runtimes: the caller's may have none. Never, once
/// that runtime has ended; then the database's own limits are left.
async fn patience(runtime: &Handle, limit: Duration) {
    let mut timer = JoinSet::new();
    timer.spawn_on(async move { tokio::time::sleep(limit).await }, runtime);
    if !matches!(timer.join_next().await, Some(Ok(()))) {
        std::future::pending().await
    }
}

fn named(operation: &'static str) -> impl Fn(Error) -> Error {
    move |error| error.operation(operation).engine(ENGINE)
}

fn about<'a>(operation: &'static str, key: &'a Key) -> impl FnOnce(Error) -> Error + use<'a> {
    move |error| error.operation(operation).key(key).engine(ENGINE)
}

/// How its URLs are written.
pub(super) const URLS: &[&str] = &["sqlite:PATH"];

/// What it promises, unless `max_ttl` makes the longest term shorter.
pub(super) fn promises() -> Promises {
    Promises {
        engine: ENGINE,
        shared: true,
        permits: true,
        fifo: true,
        wakes: Told::Push,
        notes: true,
        token: "one counter in the file, never below the wall clock in microseconds. Tokens grow as long as that \
                clock does not step back across a loss of the file (deleted, restored, or its last writes lost \
                with the machine's power)",
        exclusion: "a file that is deleted, replaced or changed by others than Tenure while it is held; two machines \
                    that share it by a file system that does not look like one of a network",
        shortest_term: SHORTEST_TERM,
        longest_term: LONGEST_TERM,
        longest_queue: LONGEST_QUEUE,
    }
}

#[async_trait]
impl Engine for Sqlite {
    fn promises(&self) -> Promises {
        Promises { longest_term: self.longest_term, ..promises() }
    }

    async fn claim(&self, claim: &Claim) -> Result<Answer> {
        self.claim_inner(claim).await.map_err(about("claim", &claim.key))
    }

    async fn renew(&self, stakes: &[Stake]) -> Vec<Renewed> {
        if stakes.is_empty() {
            return Vec::new();
        }
        let asks = stakes.to_vec();
        let renew = move |flight: &mut Flight<'_>| {
            asks.iter().map(|stake| flight.renew(stake)).collect::<Step<Vec<_>>>()
        };
        // On their own runtime: requests that are stuck must not hold renewals up.
        let timer = patience(self.background.renewals(), RENEWAL_LIMIT);
        match self.ask_within(RENEWAL_LIMIT, timer, true, renew).await {
            Ok(kept) => stakes.iter().zip(kept).map(|(stake, kept)| self.renewed(stake, kept)).collect(),
            Err(error) => {
                let unknown = |stake: &Stake| Renewed::Unknown(about("renew", &stake.key)(error.clone()));
                stakes.iter().map(unknown).collect()
            }
        }
    }

    async fn release(&self, stake: &Stake) -> Result<Released> {
        let asks = stake.clone();
        self.wakes.forget(stake.owner);
        self.ask(move |flight| flight.release(&asks)).await.map_err(about("release", &stake.key))
    }

    async fn note(&self, stake: &Stake, record: &Record) -> Result<()> {
        let (asks, record) = (stake.clone(), record.clone());
        self.ask(move |flight| flight.note(&asks, &record)).await.map_err(about("note", &stake.key))
    }

    async fn look(&self, key: &Key) -> Result<View> {
        let asks = key.clone();
        let seen = self.ask(move |flight| flight.look(&asks)).await.map_err(about("look", key))?;
        let Seen { holders, waiters, note } = seen;
        let runtime = self.background.requests().clone();
        let wake = Wake::new(async move {
            // The caller's runtime may have no timer; an error means that the client was closed.
            let _ = runtime.spawn(async { tokio::time::sleep(LOOK_AGAIN).await }).await;
            Woken::Ask
        });
        let physical =
            ["holds", "places", "notes"].map(|table| format!("{table}: {}", key.as_str())).to_vec();
        Ok(View { holders, waiters, note, physical, wake })
    }

    async fn list(&self, starts_with: &str, after: Option<Cursor>) -> Result<Page> {
        let starts_with = starts_with.to_owned();
        let list = self.ask(move |flight| flight.list(&starts_with, after.as_ref())).await;
        list.map_err(named("list"))
    }
}
