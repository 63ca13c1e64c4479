//! The reference engine: a store in this process.
//!
//! It behaves as the Redis engine does, so that the core can be tried on a paused clock: every
//! request is one step, expiry is judged by the store's clock when a request comes and never by a
//! task, and a release hands the key to whom it admits by a push that can be lost. It knows all modes.

pub(super) mod line;
mod store;
#[cfg(test)]
mod tests;
mod wake;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::store::{Entry, LONGEST_QUEUE, Store};
use super::{Answer, Claim, Cursor, Engine, Holder, Page, Record, Released, Renewed, Stake, View, Wake};
use crate::background::Background;
use crate::error::{Error, ErrorKind, Result};
use crate::key::{Key, Owner};
use crate::promises::{Promises, Wakes};
use crate::time::check_term;

const NAME: &str = "memory";
const SHORTEST_TERM: Duration = Duration::from_millis(100);
const LONGEST_TERM: Duration = Duration::from_secs(30 * 24 * 3600);
const PAGE: usize = 1000;

/// One client of a store that lives in this process.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use tenure::Background;
/// use tenure::engine::memory::Memory;
///
/// let background = Background::on_this_runtime(1);
/// let one = Memory::new(&background);
/// let another = one.client(&background); // a second client of the same store
/// assert_eq!(another.census().holders, 0);
/// # });
/// ```
pub struct Memory {
    store: Arc<Store>,
    host: String,
}

/// What is in a store: for tests that prove that nothing was left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Census {
    /// Holds that have not run out.
    pub holders: usize,
    /// Places in queues that have not run out.
    pub waiters: usize,
    /// Wakes that somebody still listens to.
    pub listeners: usize,
}

impl Memory {
    /// A client of a new store, whose clock is that of `background`.
    #[must_use]
    pub fn new(background: &Background) -> Memory {
        Memory::of(Store::new(background))
    }

    /// Another client of the same store. The store keeps its own clock; `background` is the client's.
    #[must_use]
    pub fn client(&self, background: &Background) -> Memory {
        // The store works in the caller's own step: there is no connection to run in the background.
        let _ = background;
        Memory::of(self.store.clone())
    }

    fn of(store: Arc<Store>) -> Memory {
        let host = format!("{}@client-{}", std::process::id(), store.new_client());
        Memory { store, host }
    }

    /// The owners that hold a key and those that wait for it, the next one first. As [`Memory::census`],
    /// it changes nothing: even a key that has just run out is not handed over because of it.
    #[must_use]
    pub fn peek(&self, key: &Key) -> (Vec<Owner>, Vec<Owner>) {
        let now = self.store.now();
        let state = self.store.lock();
        let Some(entry) = state.keys.get(key) else { return (Vec::new(), Vec::new()) };
        let holders = entry.holders.iter().filter(|held| held.until > now).map(|held| held.owner);
        let waiters = entry.queue.iter().filter(|place| place.deadline() > now).map(|place| place.owner);
        (holders.collect(), waiters.collect())
    }

    /// Counts what is in the store now. Changes nothing, hands nothing over.
    #[must_use]
    pub fn census(&self) -> Census {
        let now = self.store.now();
        let state = self.store.lock();
        let mut census = Census::default();
        for entry in state.keys.values() {
            census.holders += entry.holders.iter().filter(|held| held.until > now).count();
            census.waiters += entry.queue.iter().filter(|place| place.deadline() > now).count();
            census.listeners += entry.listeners(now);
        }
        census
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({})", self.host)
    }
}

/// How its URLs are written.
pub(super) const URLS: &[&str] = &["memory:"];

/// What every store of this engine promises.
pub(super) fn promises() -> Promises {
    Promises {
        engine: NAME,
        shared: true,
        permits: true,
        fifo: true,
        wakes: Wakes::Push,
        notes: true,
        token: "the store's clock does not step back; the store ends with the process",
        exclusion: "",
        shortest_term: SHORTEST_TERM,
        longest_term: LONGEST_TERM,
        longest_queue: LONGEST_QUEUE,
    }
}

#[async_trait]
impl Engine for Memory {
    fn promises(&self) -> Promises {
        promises()
    }

    async fn claim(&self, claim: &Claim) -> Result<Answer> {
        let named = |error: Error| error.operation("claim").key(&claim.key).engine(NAME);
        check_term(claim.term, &self.promises()).map_err(named)?;
        self.store.claim(claim, self.host.clone()).map_err(named)
    }

    async fn renew(&self, stakes: &[Stake]) -> Vec<Renewed> {
        stakes.iter().map(|stake| self.store.renew(stake)).collect()
    }

    async fn release(&self, stake: &Stake) -> Result<Released> {
        Ok(self.store.release(stake))
    }

    async fn note(&self, stake: &Stake, record: &Record) -> Result<()> {
        self.store.at(&stake.key, |entry, _, now| {
            if !entry.holders.iter().any(|held| held.owner == stake.owner) {
                return Err(Error::new(ErrorKind::Lost, "the key is not held by this owner any more")
                    .operation("note")
                    .key(&stake.key)
                    .engine(NAME));
            }
            entry.note = Some((record.clone(), now));
            entry.changed();
            Ok(())
        })
    }

    async fn look(&self, key: &Key) -> Result<View> {
        self.store.at(key, |entry, _, now| {
            let wake = entry.watch().map_or_else(Wake::never, wake::change);
            Ok(View {
                holders: holders(entry, now),
                waiters: entry.queue.iter().map(|place| place.owner).collect(),
                note: entry.note.as_ref().map(|(record, stored)| (record.clone(), now.since(*stored))),
                physical: vec![key.as_str().to_owned()],
                wake,
            })
        })
    }

    async fn list(&self, starts_with: &str, after: Option<Cursor>) -> Result<Page> {
        let now = self.store.now();
        let state = self.store.lock();
        let held = state.keys.iter().filter(|(key, entry)| {
            key.as_str().starts_with(starts_with)
                && after.as_ref().is_none_or(|last| key.as_str() > last.0.as_str())
                && entry.holders.iter().any(|held| held.until > now)
        });
        let mut keys: Vec<Key> = held.map(|(key, _)| key.clone()).take(PAGE + 1).collect();
        let more = keys.len() > PAGE;
        keys.truncate(PAGE);
        let next = keys.last().filter(|_| more).map(|last| Cursor(last.as_str().to_owned()));
        Ok(Page { keys, next })
    }
}

fn holders(entry: &Entry, now: crate::time::Moment) -> Vec<Holder> {
    let view = |held: &store::Held| Holder {
        owner: Some(held.owner),
        mode: held.mode,
        remaining: held.until.since(now),
        raw: Some(held.raw),
        host: Some(held.host.clone()),
        since_unix_ms: None,
        value: held.value.clone(),
    };
    entry.holders.iter().map(view).collect()
}
