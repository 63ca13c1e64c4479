//! The store behind the memory engine: what a script would do on a server, in one step.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::line;
use super::wake::{Mailbox, change};
use crate::background::Background;
use crate::engine::{Answer, Busy, Claim, Grant, Mode, Record, Released, Renewed, Stake, Wake};
use crate::error::{Error, ErrorKind, Result};
use crate::key::{Key, Owner};
use crate::time::{Moment, pushed_term, refresh_interval};

/// The longest queue of one key, and the most who may watch one key.
pub(super) const LONGEST_QUEUE: usize = 4096;

/// Timers count whole milliseconds and round down: whoever asks when a hold ends asks a little later.
const AFTER_EXPIRY: Duration = Duration::from_millis(2);

pub(super) struct Store {
    clock: Background,
    state: Mutex<State>,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) keys: BTreeMap<Key, Entry>,
    /// One counter for all keys, as on a server: the number of the last grant.
    counter: u64,
    clients: u64,
    /// How far the removal of forgotten entries has come.
    swept: Option<Key>,
}

impl State {
    /// Removes one entry, if its time has come, that nobody asked about since it ran out: so a store
    /// does not grow with the keys that were ever used.
    fn sweep_one(&mut self, now: Moment) {
        let after = self.swept.take().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.keys.range((after, Bound::Unbounded)).next();
        let Some((key, spent)) = next.map(|(key, entry)| (key.clone(), entry.is_spent(now))) else {
            return;
        };
        if spent {
            self.keys.remove(&key);
        }
        self.swept = Some(key);
    }
}

/// All that is known of one key.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) holders: Vec<Held>,
    pub(super) queue: VecDeque<Place>,
    pub(super) note: Option<(Record, Moment)>,
    pub(super) watchers: Vec<oneshot::Sender<()>>,
}

pub(super) struct Held {
    pub(super) owner: Owner,
    pub(super) mode: Mode,
    pub(super) until: Moment,
    pub(super) raw: u64,
    pub(super) host: String,
    pub(super) value: Vec<u8>,
}

pub(super) struct Place {
    pub(super) owner: Owner,
    mode: Mode,
    term: Duration,
    deadline: Moment,
    host: String,
    value: Vec<u8>,
    /// Where a hand-over is told. More than one after the same request came twice.
    mailboxes: Vec<oneshot::Sender<Grant>>,
}

impl Place {
    fn refresh(&mut self, now: Moment) {
        self.deadline = now + refresh_interval(self.term) * 3;
    }

    pub(super) fn deadline(&self) -> Moment {
        self.deadline
    }

    fn forget_closed(&mut self) {
        self.mailboxes.retain(|mailbox| !mailbox.is_closed());
    }
}

impl Store {
    pub(super) fn new(clock: &Background) -> Arc<Store> {
        let counter = clock.now().as_nanos() / 1000;
        let state = State { counter, ..State::default() };
        Arc::new(Store { clock: clock.clone(), state: Mutex::new(state) })
    }

    pub(super) fn new_client(&self) -> u64 {
        let mut state = self.lock();
        state.clients += 1;
        state.clients
    }

    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One step at one key, as a script on a server: what has run out is gone before it, who can
    /// enter has entered before and after it, and an entry with nothing in it is removed.
    pub(super) fn at<T>(&self, key: &Key, step: impl FnOnce(&mut Entry, &mut u64, Moment) -> T) -> T {
        let now = self.now();
        let mut state = self.lock();
        let State { keys, counter, .. } = &mut *state;
        let entry = keys.entry(key.clone()).or_default();
        entry.settle(counter, now);
        let answer = step(entry, counter, now);
        entry.settle(counter, now);
        if entry.is_empty() {
            keys.remove(key);
        }
        state.sweep_one(now);
        answer
    }

    pub(super) fn claim(self: &Arc<Store>, claim: &Claim, host: String) -> Result<Answer> {
        self.at(&claim.key, |entry, counter, now| {
            line::check(claim.mode, entry.in_use(claim.owner))?;
            if let Some(held) = entry.holders.iter().position(|held| held.owner == claim.owner) {
                return Ok(entry.claim_again(held, claim, counter, now));
            }
            if let Some(place) = entry.queue.iter().position(|place| place.owner == claim.owner) {
                let waiting = &mut entry.queue[place];
                waiting.value.clone_from(&claim.value);
                waiting.refresh(now);
                waiting.forget_closed();
                let wake = self.mailbox(claim, waiting);
                return Ok(Answer::Busy(entry.busy(Some(place), claim.term, wake, now)));
            }
            if line::fits(entry.modes_in_line(), claim.mode) {
                let raw = mint(counter);
                entry.holders.push(Held {
                    owner: claim.owner,
                    mode: claim.mode,
                    until: now + claim.term,
                    raw,
                    host,
                    value: claim.value.clone(),
                });
                entry.changed();
                return Ok(Answer::Granted(Grant { raw, term: claim.term, made: true }));
            }
            if !claim.join {
                return Ok(Answer::Busy(entry.busy(None, claim.term, Wake::never(), now)));
            }
            self.join(entry, claim, host, now)
        })
    }

    fn join(
        self: &Arc<Store>,
        entry: &mut Entry,
        claim: &Claim,
        host: String,
        now: Moment,
    ) -> Result<Answer> {
        if entry.queue.len() >= LONGEST_QUEUE {
            let what = format!("{LONGEST_QUEUE} clients wait for the key already");
            return Err(Error::new(ErrorKind::Full, what).advice("wait and try again"));
        }
        let mut place = Place {
            owner: claim.owner,
            mode: claim.mode,
            term: claim.term,
            deadline: now,
            host,
            value: claim.value.clone(),
            mailboxes: Vec::new(),
        };
        place.refresh(now);
        let wake = self.mailbox(claim, &mut place);
        entry.queue.push_back(place);
        entry.changed();
        let ahead = entry.queue.len() - 1;
        Ok(Answer::Busy(entry.busy(Some(ahead), claim.term, wake, now)))
    }

    fn mailbox(self: &Arc<Store>, claim: &Claim, place: &mut Place) -> Wake {
        let (sender, receiver) = oneshot::channel();
        place.mailboxes.push(sender);
        Wake::new(Mailbox::new(receiver, self.clone(), claim.key.clone(), claim.owner))
    }

    pub(super) fn renew(&self, stake: &Stake) -> Renewed {
        self.at(&stake.key, |entry, counter, now| {
            if let Some(place) = entry.queue.iter_mut().find(|place| place.owner == stake.owner) {
                place.refresh(now);
                entry.settle(counter, now);
            }
            if let Some(held) = entry.holders.iter_mut().find(|held| held.owner == stake.owner) {
                // Never shortens: a late and shorter request cannot undo a longer one.
                held.until = held.until.max(now + stake.term);
                return Renewed::Kept(held.until.since(now));
            }
            match entry.queue.iter().position(|place| place.owner == stake.owner) {
                Some(place) => Renewed::Waiting(entry.busy(Some(place), stake.term, Wake::never(), now)),
                None => Renewed::Lost,
            }
        })
    }

    pub(super) fn release(&self, stake: &Stake) -> Released {
        self.at(&stake.key, |entry, _, _| {
            let before = entry.holders.len() + entry.queue.len();
            entry.holders.retain(|held| held.owner != stake.owner);
            entry.queue.retain(|place| place.owner != stake.owner);
            if entry.holders.len() + entry.queue.len() == before {
                return Released::WasLost;
            }
            entry.changed();
            Released::Released
        })
    }

    /// Gives back a grant that was pushed and reached nobody, unless it became another grant since.
    pub(super) fn hand_back(&self, key: &Key, owner: Owner, raw: u64) {
        self.at(key, |entry, _, _| {
            let before = entry.holders.len();
            entry.holders.retain(|held| held.owner != owner || held.raw != raw);
            if entry.holders.len() < before {
                entry.changed();
            }
        });
    }
}

impl Entry {
    /// Drops what has run out and hands the key to whom it admits.
    fn settle(&mut self, counter: &mut u64, now: Moment) {
        let before = (self.holders.len(), self.queue.len());
        self.holders.retain(|held| held.until > now);
        self.queue.retain(|place| place.deadline > now);
        let mut changed = before != (self.holders.len(), self.queue.len());
        loop {
            let held = self.holders.iter().map(|held| held.mode);
            let enter = line::admitted(held, self.queue.iter().map(|place| place.mode));
            if enter == 0 {
                break;
            }
            changed = true;
            // Who cannot be told is skipped, which may make room for another: so once more after it.
            for _ in 0..enter {
                if let Some(head) = self.queue.pop_front() {
                    self.hand_over(head, counter, now);
                }
            }
        }
        if changed {
            self.changed();
        }
    }

    /// Publishes first and sets then: who cannot be told is skipped, and the next one gets it.
    fn hand_over(&mut self, mut head: Place, counter: &mut u64, now: Moment) {
        head.forget_closed();
        let term = pushed_term(head.term);
        let grant = Grant { raw: *counter + 1, term, made: false };
        if !head.mailboxes.drain(..).any(|mailbox| mailbox.send(grant).is_ok()) {
            return;
        }
        let raw = mint(counter);
        self.holders.push(Held {
            owner: head.owner,
            mode: head.mode,
            until: now + term,
            raw,
            host: head.host,
            value: head.value,
        });
    }

    /// Asking as a holder: a new value and a new number, never a new term. In another mode it is a
    /// conversion, without a gap or not at all.
    fn claim_again(&mut self, held: usize, claim: &Claim, counter: &mut u64, now: Moment) -> Answer {
        let others = self.holders.iter().enumerate().filter(|(at, _)| *at != held);
        if !line::fits(others.map(|(_, other)| other.mode), claim.mode) {
            let wake = self.watch().map_or_else(Wake::never, change);
            return Answer::Busy(self.busy(None, claim.term, wake, now));
        }
        let holder = &mut self.holders[held];
        holder.mode = claim.mode;
        holder.value.clone_from(&claim.value);
        holder.raw = mint(counter);
        let grant = Grant { raw: holder.raw, term: holder.until.since(now), made: false };
        self.changed();
        Answer::Granted(grant)
    }

    fn busy(&self, ahead: Option<usize>, term: Duration, wake: Wake, now: Moment) -> Busy {
        let recheck = refresh_interval(term);
        let soonest = self.holders.iter().map(|held| held.until.since(now) + AFTER_EXPIRY).min();
        let ask_within = match (ahead, soonest) {
            (Some(0), Some(soonest)) => soonest.min(recheck),
            _ => recheck,
        };
        let holder = self.holders.first().map(|held| held.host.clone());
        Busy { ahead, wake, ask_within, holder }
    }

    /// The mode the key is used in by others than `owner`, who may change its own.
    fn in_use(&self, owner: Owner) -> Option<Mode> {
        let holders = self.holders.iter().map(|held| (held.owner, held.mode));
        let waiters = self.queue.iter().map(|place| (place.owner, place.mode));
        let mut used = holders.chain(waiters);
        used.find(|(who, mode)| *who != owner || matches!(mode, Mode::Permits { .. })).map(|(_, mode)| mode)
    }

    fn modes_in_line(&self) -> impl Iterator<Item = Mode> {
        let holders = self.holders.iter().map(|held| held.mode);
        holders.chain(self.queue.iter().map(|place| place.mode))
    }

    /// Tells whoever looks at the key.
    pub(super) fn changed(&mut self) {
        for watcher in self.watchers.drain(..) {
            // Nobody looks any more: nothing to tell.
            let _ = watcher.send(());
        }
    }

    /// Something that resolves at the next change; none if too many watch.
    pub(super) fn watch(&mut self) -> Option<oneshot::Receiver<()>> {
        self.watchers.retain(|watcher| !watcher.is_closed());
        if self.watchers.len() >= LONGEST_QUEUE {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        self.watchers.push(sender);
        Some(receiver)
    }

    /// How many listen to this key: waiters whose place has not run out, and those who look.
    pub(super) fn listeners(&self, now: Moment) -> usize {
        let waiting = self.queue.iter().filter(|place| place.deadline > now);
        let mailboxes = waiting.flat_map(|place| &place.mailboxes);
        mailboxes.filter(|mailbox| !mailbox.is_closed()).count()
            + self.watchers.iter().filter(|watcher| !watcher.is_closed()).count()
    }

    fn is_empty(&self) -> bool {
        let watched = self.watchers.iter().any(|watcher| !watcher.is_closed());
        self.holders.is_empty() && self.queue.is_empty() && self.note.is_none() && !watched
    }

    /// Whether nothing of it counts any more, though nobody has asked since.
    fn is_spent(&self, now: Moment) -> bool {
        self.holders.iter().all(|held| held.until <= now)
            && self.queue.iter().all(|place| place.deadline <= now)
            && self.note.is_none()
            && self.watchers.iter().all(oneshot::Sender::is_closed)
    }
}

fn mint(counter: &mut u64) -> u64 {
    *counter += 1;
    *counter
}
