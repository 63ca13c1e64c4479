//! What an engine is: seven questions that a store answers about keys.
//!
//! [`Engine`] is the contract between the core and a store. It has no default methods, so that an
//! engine built of another one cannot bypass it unnoticed. Users rarely need this module; authors
//! of engines run `tenure-testkit`'s suite over theirs.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;
use crate::key::{Key, Owner};
use crate::promises::Promises;

pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

/// An engine that this build knows.
#[derive(Clone, Debug)]
pub struct Known {
    /// How its URLs are written.
    pub urls: &'static [&'static str],
    /// What it promises unless its URL or its server says less.
    pub promises: Promises,
}

/// The engines of this build, without a connection to any.
#[must_use]
pub fn known() -> Vec<Known> {
    vec![
        Known { urls: memory::URLS, promises: memory::promises() },
        #[cfg(feature = "redis")]
        Known { urls: redis::URLS, promises: redis::promises() },
        #[cfg(feature = "sqlite")]
        Known { urls: sqlite::URLS, promises: sqlite::promises() },
    ]
}

/// A store that decides who holds a key.
///
/// Every request has a time limit of the engine's own, and ends with an error that says whether it
/// may have taken effect. Dropping a returned future must not take back what is on the wire.
/// Engines have no clock of their own: they answer with durations, and the core stamps the moment
/// before the request was sent. Expiry is judged by the store's clock. An engine is `Any`, so that a caller
/// that needs more than the contract of one engine can find out whether it has that one.
#[async_trait]
pub trait Engine: fmt::Debug + Any + Send + Sync {
    /// What this engine guarantees.
    fn promises(&self) -> Promises;

    /// Asks to enter. One round trip when nobody is in the way.
    ///
    /// Asking as an owner that holds the key already changes the value, never the term, and mints a
    /// new number ([`Grant::made`] is false). With `join`, a busy answer means that the owner now
    /// waits in the key's queue, if the engine keeps one; without, nothing that blocks others was
    /// written. An error that may have taken effect must be undone with [`release`](Engine::release).
    async fn claim(&self, claim: &Claim) -> Result<Answer>;

    /// Prolongs what is held and refreshes places in queues: one answer per stake, in order.
    ///
    /// Never creates a hold that was not there, never shortens a term. Where a key is free and has a
    /// queue, refreshing any place of it hands the key to the head. A waiting stake that turns out
    /// to hold the key answers `Kept`: the message that told of it was lost.
    async fn renew(&self, stakes: &[Stake]) -> Vec<Renewed>;

    /// Gives back a hold, or leaves the queue. By owner, idempotent, in any state of knowledge.
    async fn release(&self, stake: &Stake) -> Result<Released>;

    /// Stores a record beside the key, in one step with "the stake still holds it". It outlives the
    /// hold.
    ///
    /// # Errors
    /// `Lost` if the stake does not hold the key.
    async fn note(&self, stake: &Stake, record: &Record) -> Result<()>;

    /// Who holds the key, who waits, and the record beside it.
    async fn look(&self, key: &Key) -> Result<View>;

    /// A page of the keys that are held and start with a text. Bounded; not for hot paths.
    async fn list(&self, starts_with: &str, after: Option<Cursor>) -> Result<Page>;
}

/// How a key is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Alone.
    Exclusive,
    /// Together with other shared holders.
    Shared,
    /// `take` permits of a total `of`.
    Permits {
        /// How many.
        take: u32,
        /// Of how many; the same for all who use the key.
        of: u32,
    },
}

/// A request to enter.
#[derive(Clone, Debug)]
pub struct Claim {
    /// What is asked for.
    pub key: Key,
    /// Who asks.
    pub owner: Owner,
    /// How it is to be held.
    pub mode: Mode,
    /// For how long, unless renewed.
    pub term: Duration,
    /// What others see beside the holder; may be empty.
    pub value: Vec<u8>,
    /// Whether to queue if it is busy.
    pub join: bool,
}

impl Claim {
    /// The stake that this claim creates.
    #[must_use]
    pub fn stake(&self) -> Stake {
        Stake { key: self.key.clone(), owner: self.owner, mode: self.mode, term: self.term, raw: None }
    }
}

/// The answer to a claim.
#[derive(Debug)]
pub enum Answer {
    /// It is held now.
    Granted(Grant),
    /// Somebody is in the way.
    Busy(Busy),
}

/// A hold that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The number, below 2^53, larger than that of every earlier grant of the key.
    pub raw: u64,
    /// For how long it was granted.
    pub term: Duration,
    /// Whether this very request made the grant. If not (it was pushed, or was there already), its
    /// validity counts from an earlier request (R1).
    pub made: bool,
}

/// Somebody is in the way.
#[derive(Debug)]
pub struct Busy {
    /// How many wait before this owner; `None` if it does not wait.
    pub ahead: Option<usize>,
    /// Resolves when the key was handed over, or when refreshing the place may be worthwhile.
    pub wake: Wake,
    /// The latest time to refresh the place, counted from the answer.
    pub ask_within: Duration,
    /// Who holds it, for people; as far as the engine can say.
    pub holder: Option<String>,
}

/// What a waiter is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The key was handed over.
    Granted(Grant),
    /// Something may have changed: refresh the place.
    Ask,
}

/// A future that ends when a waiter should do something. It may never end: a wake is a hint.
pub struct Wake(Pin<Box<dyn Future<Output = Woken> + Send>>);

impl Wake {
    /// A wake that ends with `future`.
    pub fn new(future: impl Future<Output = Woken> + Send + 'static) -> Wake {
        Wake(Box::pin(future))
    }

    /// A wake that never ends.
    #[must_use]
    pub fn never() -> Wake {
        Wake::new(std::future::pending())
    }
}

impl Future for Wake {
    type Output = Woken;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Woken> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wake")
    }
}

/// What a client has at an engine: a hold or a place in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stake {
    /// The key.
    pub key: Key,
    /// Whose it is.
    pub owner: Owner,
    /// How it is, or will be, held.
    pub mode: Mode,
    /// The term that a renewal grants.
    pub term: Duration,
    /// The store's number, once granted.
    pub raw: Option<u64>,
}

/// The answer to a renewal of one stake.
#[derive(Debug)]
pub enum Renewed {
    /// It holds the key, and from now on for this long at least.
    Kept(Duration),
    /// It waits; its place was refreshed. The wake of the first answer stays the one that counts.
    Waiting(Busy),
    /// It neither holds nor waits.
    Lost,
    /// Nothing is known; the clock runs on.
    Unknown(crate::Error),
}

/// The answer to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Released {
    /// It was held, or waited, and is given back now.
    Released,
    /// There was nothing to give back: it had been lost before.
    WasLost,
}

/// A record that is kept beside a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record(pub Vec<u8>);

/// What an engine says about a key.
#[derive(Debug)]
pub struct View {
    /// Who holds it. Empty: nobody.
    pub holders: Vec<Holder>,
    /// Who waits, the next one first.
    pub waiters: Vec<Owner>,
    /// The record beside it, and how long ago it was stored by the store's clock.
    pub note: Option<(Record, Duration)>,
    /// Every name under which the store keeps something of this key, the hold itself first, whether or
    /// not there is anything now (R9).
    pub physical: Vec<String>,
    /// Resolves when looking again may be worthwhile.
    pub wake: Wake,
}

/// One holder of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Whose hold it is; `None` if it is not one of Tenure's.
    pub owner: Option<Owner>,
    /// How it is held.
    pub mode: Mode,
    /// How long it lasts unless renewed.
    pub remaining: Duration,
    /// The number of the grant, where the store keeps it.
    pub raw: Option<u64>,
    /// Host and process, `pid@host`, where known.
    pub host: Option<String>,
    /// When it entered, as milliseconds since 1970 by its own clock, where known. For people only.
    pub since_unix_ms: Option<u64>,
    /// The holder's value.
    pub value: Vec<u8>,
}

/// Where to go on in a listing; made by the engine, opaque to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub String);

/// A page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Keys that are held, in no order.
    pub keys: Vec<Key>,
    /// Where the next page starts; `None` at the end.
    pub next: Option<Cursor>,
}
