//! What a transaction does: every question of the engine, in terms of rows.
//!
//! It is what the memory engine does under its lock. Before it answers about a key, what has run out is gone
//! and who can enter has entered.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::LONGEST_QUEUE;
use super::clients::{ClientId, Folder, Reach};
use super::clock::{Boot, wall_micros};
use super::failure::Step;
use super::rows::{Held, Place, Rows};
use crate::engine::memory::line;
use crate::engine::{Claim, Cursor, Grant, Holder, Mode, Page, Record, Released, Stake};
use crate::error::{Error, ErrorKind};
use crate::key::{Key, Owner, Token};
use crate::time::{pushed_term, refresh_interval};

/// Timers count whole milliseconds: whoever asks when a hold ends asks a little later.
const AFTER_EXPIRY: Duration = Duration::from_millis(2);
/// How many clients a waiter watches at most; of the others it learns at its next refresh.
const WATCHED: usize = 64;
/// Keys in one page of a listing.
const PAGE: usize = 1000;
/// Holds looked at in one step of the sweep.
const SWEEP: usize = 16;

/// Who asks.
pub(super) struct Me {
    pub(super) id: ClientId,
    pub(super) folder: Folder,
    pub(super) host: String,
    pub(super) boot: Boot,
}

/// A hand-over, to be told once it is committed.
pub(super) struct Told {
    pub(super) to: To,
    pub(super) key: Key,
    pub(super) owner: Owner,
    pub(super) grant: Grant,
}

/// Whom it is told.
pub(super) enum To {
    /// A waiter of this client.
    Us,
    /// One of another client.
    Other(Arc<OwnedFd>),
}

/// Somebody is in the way.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) ahead: Option<usize>,
    pub(super) ask_within: Duration,
    pub(super) holder: Option<String>,
    /// Other clients whose end lets somebody in.
    pub(super) before: Vec<ClientId>,
}

/// The answer to a claim.
pub(super) enum Claimed {
    Granted(Grant),
    Busy(Way),
}

/// The answer to a renewal.
pub(super) enum Kept {
    Holds(Duration),
    Waits(Way),
    Lost,
}

/// What is seen of a key.
pub(super) struct Seen {
    pub(super) holders: Vec<Holder>,
    pub(super) waiters: Vec<Owner>,
    pub(super) note: Option<(Record, Duration)>,
}

/// How far the removal of what ran out has come.
#[derive(Default)]
pub(super) struct Swept {
    holds: String,
    queues: String,
}

/// Who holds a key, and who is the next, once all who can enter have.
struct Line {
    holds: Vec<Held>,
    head: Option<Place>,
}

/// One transaction.
pub(super) struct Flight<'a> {
    rows: Rows<'a>,
    me: &'a Me,
    now: i64,
    counter: Option<u64>,
    /// What was found out about other clients.
    dead: HashMap<ClientId, bool>,
    /// Kept until the commit: one of each client, however much it is handed.
    pipes: HashMap<ClientId, Arc<OwnedFd>>,
    pub(super) told: Vec<Told>,
    /// Clients that were found dead; their files can go once this is committed.
    pub(super) buried: Vec<ClientId>,
}

impl Line {
    fn fits_beside_others(&self, owner: Owner, mode: Mode) -> bool {
        line::fits(self.holds.iter().filter(|held| held.owner != owner).map(|held| held.mode), mode)
    }

    /// The mode the key is used in by others than `owner`, who may change its own.
    fn in_use(&self, owner: Owner) -> Option<Mode> {
        let holders = self.holds.iter().map(|held| (held.owner, held.mode));
        let mut used = holders.chain(self.head.iter().map(|place| (place.owner, place.mode)));
        used.find(|(who, mode)| *who != owner || matches!(mode, Mode::Permits { .. })).map(|(_, mode)| mode)
    }
}

impl<'a> Flight<'a> {
    pub(super) fn new(rows: Rows<'a>, me: &'a Me, now: i64) -> Flight<'a> {
        let (dead, pipes, told, buried) = (HashMap::new(), HashMap::new(), Vec::new(), Vec::new());
        Flight { rows, me, now, counter: None, dead, pipes, told, buried }
    }

    /// Writes what is written once for all that were in it.
    pub(super) fn finish(&mut self) -> Step<()> {
        if let Some(raw) = self.counter {
            self.rows.set_counter(raw)?;
        }
        Ok(())
    }

    fn mint(&mut self) -> Step<u64> {
        let last = match self.counter {
            Some(last) => last,
            None => {
                let (last, boot) = self.rows.state()?;
                if boot != *self.me.boot.0 {
                    return Err(Error::new(ErrorKind::Unsupported, "another machine uses the same file")
                        .advice("give each machine a file of its own, or take an engine with a server")
                        .into());
                }
                // A clock beyond what a number can hold is wrong, and counts for nothing.
                Some(wall_micros())
                    .filter(|wall| *wall < Token::RAW_END / 2)
                    .map_or(last, |wall| wall.max(last))
            }
        };
        let raw = last + 1;
        if raw >= Token::RAW_END {
            return Err(Error::new(ErrorKind::Internal, "the numbers of the file are used up")
                .advice("take another file, and other keys")
                .into());
        }
        self.counter = Some(raw);
        Ok(raw)
    }

    fn is_dead(&mut self, client: ClientId) -> bool {
        let me = self.me;
        client != me.id && *self.dead.entry(client).or_insert_with(|| me.folder.is_dead(client))
    }

    /// Removes what has run out and hands the key to whom it admits.
    fn settle(&mut self, key: &Key) -> Step<Line> {
        let mut holds = self.rows.holds(key)?;
        for held in holds.extract_if(.., |held| held.until <= self.now) {
            self.rows.remove_hold(key, held.owner)?;
        }
        while let Some(place) = self.rows.head(key)? {
            let counts = place.deadline > self.now;
            if counts && !line::fits(holds.iter().map(|held| held.mode), place.mode) {
                return Ok(Line { holds, head: Some(place) });
            }
            self.rows.remove_place(key, place.owner)?;
            if counts {
                holds.extend(self.hand_over(key, place)?);
            }
        }
        Ok(Line { holds, head: None })
    }

    /// As [`settle`](Flight::settle), where somebody is in the way: unless that one is dead.
    fn settle_among_the_living(&mut self, key: &Key) -> Step<Line> {
        loop {
            let line = self.settle(key)?;
            let dead: Vec<ClientId> =
                line.holds.iter().map(|held| held.client).filter(|client| self.is_dead(*client)).collect();
            if dead.is_empty() {
                return Ok(line);
            }
            for client in dead {
                self.bury(client)?;
            }
        }
    }

    /// Gives the key to the one who is next, for a short term. Who has gone is passed over.
    fn hand_over(&mut self, key: &Key, place: Place) -> Step<Option<Held>> {
        let to = if place.client == self.me.id {
            Some(To::Us)
        } else if self.is_dead(place.client) {
            return Ok(None);
        } else if let Some(pipe) = self.pipes.get(&place.client) {
            Some(To::Other(pipe.clone()))
        } else {
            match self.me.folder.reach(place.client) {
                Reach::Told(pipe) => {
                    let pipe = self.pipes.entry(place.client).or_insert(Arc::new(pipe));
                    Some(To::Other(pipe.clone()))
                }
                Reach::Gone => return Ok(None),
                Reach::Untold => None,
            }
        };
        let term = pushed_term(span(place.term));
        let raw = self.mint()?;
        let held = Held {
            owner: place.owner,
            mode: place.mode,
            client: place.client,
            until: self.now.saturating_add(nanos(term)),
            host: place.host,
        };
        self.rows.add_hold(key, &held, raw, wall_micros() / 1000, &place.value)?;
        if let Some(to) = to {
            let grant = Grant { raw, term, made: false };
            self.told.push(Told { to, key: key.clone(), owner: place.owner, grant });
        }
        Ok(Some(held))
    }

    /// Removes all that a dead client has, and hands on what others wait for.
    fn bury(&mut self, client: ClientId) -> Step<()> {
        for key in self.rows.remove_client(client)? {
            self.settle(&key)?;
        }
        self.buried.push(client);
        Ok(())
    }

    /// Removes all that a client has if it is dead.
    pub(super) fn bury_if_dead(&mut self, client: ClientId) -> Step<()> {
        if self.me.folder.is_dead(client) {
            self.dead.insert(client, true);
            self.bury(client)?;
        }
        Ok(())
    }

    pub(super) fn claim(&mut self, claim: &Claim) -> Step<Claimed> {
        let (key, owner) = (&claim.key, claim.owner);
        let mut line = self.settle(key)?;
        let admits = |line: &Line| {
            let holds = line.holds.iter().any(|held| held.owner == owner);
            line.fits_beside_others(owner, claim.mode) && (holds || line.head.is_none())
        };
        if !admits(&line) || line::check(claim.mode, line.in_use(owner)).is_err() {
            line = self.settle_among_the_living(key)?;
        }
        line::check(claim.mode, line.in_use(owner))?;
        if let Some(held) = line.holds.iter().find(|held| held.owner == owner) {
            let left = span(held.until - self.now);
            return match admits(&line) {
                true => self.claim_again(claim, left),
                false => Ok(Claimed::Busy(self.way(&line, None, claim.term))),
            };
        }
        if line.head.is_some() {
            let deadline = self.deadline(claim.term);
            if let Some(seq) = self.rows.refresh_place(key, owner, self.now, deadline)? {
                self.rows.change_place(key, owner, &claim.value)?;
                let ahead = self.rows.ahead(key, seq, self.now)?;
                return Ok(Claimed::Busy(self.way(&line, Some(ahead), claim.term)));
            }
        }
        if admits(&line) {
            let raw = self.mint()?;
            let held = Held {
                owner,
                mode: claim.mode,
                client: self.me.id,
                until: self.now.saturating_add(nanos(claim.term)),
                host: self.me.host.clone(),
            };
            self.rows.add_hold(key, &held, raw, wall_micros() / 1000, &claim.value)?;
            return Ok(Claimed::Granted(Grant { raw, term: claim.term, made: true }));
        }
        if !claim.join {
            return Ok(Claimed::Busy(self.way(&line, None, claim.term)));
        }
        let ahead = self.join(claim)?;
        Ok(Claimed::Busy(self.way(&line, Some(ahead), claim.term)))
    }

    /// Asking as a holder: a new value and a new number, never a new term. In another mode it is a
    /// conversion, without a gap or not at all.
    fn claim_again(&mut self, claim: &Claim, left: Duration) -> Step<Claimed> {
        let raw = self.mint()?;
        self.rows.change_hold(&claim.key, claim.owner, claim.mode, raw, &claim.value)?;
        // A holder that became a smaller one may let others in.
        self.settle(&claim.key)?;
        Ok(Claimed::Granted(Grant { raw, term: left, made: false }))
    }

    fn join(&mut self, claim: &Claim) -> Step<usize> {
        let (key, owner) = (&claim.key, claim.owner);
        let (mut waiting, mut last) = self.rows.queue(key)?;
        if waiting >= LONGEST_QUEUE {
            self.rows.purge_places(key, self.now)?;
            (waiting, last) = self.rows.queue(key)?;
        }
        if waiting >= LONGEST_QUEUE {
            let what = format!("{LONGEST_QUEUE} clients wait for the key already");
            return Err(Error::new(ErrorKind::Full, what).advice("wait and try again").into());
        }
        // A place of this owner that ran out would be in the way of the new one.
        self.rows.remove_place(key, owner)?;
        let place = Place {
            seq: last + 1,
            owner,
            mode: claim.mode,
            client: self.me.id,
            term: nanos(claim.term),
            deadline: self.deadline(claim.term),
            host: self.me.host.clone(),
            value: claim.value.clone(),
        };
        self.rows.add_place(key, &place)?;
        Ok(self.rows.ahead(key, place.seq, self.now)?)
    }

    fn deadline(&self, term: Duration) -> i64 {
        self.now.saturating_add(nanos(refresh_interval(term) * 3))
    }

    fn way(&self, line: &Line, ahead: Option<usize>, term: Duration) -> Way {
        let recheck = refresh_interval(term);
        let soonest = line.holds.iter().map(|held| span(held.until - self.now) + AFTER_EXPIRY).min();
        let ask_within = match (ahead, soonest) {
            (Some(0), Some(soonest)) => soonest.min(recheck),
            _ => recheck,
        };
        let mut before: Vec<ClientId> = line
            .holds
            .iter()
            .map(|held| held.client)
            .filter(|client| *client != self.me.id)
            .take(WATCHED)
            .collect();
        before.sort_unstable();
        before.dedup();
        Way { ahead, ask_within, holder: line.holds.first().map(|held| held.host.clone()), before }
    }

    pub(super) fn renew(&mut self, stake: &Stake) -> Step<Kept> {
        let (key, owner) = (&stake.key, stake.owner);
        let until = self.now.saturating_add(nanos(stake.term));
        if let Some(until) = self.rows.prolong(key, owner, self.now, until)? {
            return Ok(Kept::Holds(span(until - self.now)));
        }
        let deadline = self.deadline(stake.term);
        let Some(seq) = self.rows.refresh_place(key, owner, self.now, deadline)? else {
            return Ok(Kept::Lost);
        };
        let line = self.settle_among_the_living(key)?;
        if let Some(until) = self.rows.prolong(key, owner, self.now, until)? {
            return Ok(Kept::Holds(span(until - self.now)));
        }
        let ahead = self.rows.ahead(key, seq, self.now)?;
        Ok(Kept::Waits(self.way(&line, Some(ahead), stake.term)))
    }

    pub(super) fn release(&mut self, stake: &Stake) -> Step<Released> {
        let (key, owner) = (&stake.key, stake.owner);
        let mut gave = self.rows.remove_hold(key, owner)?;
        if gave.is_none() {
            gave = self.rows.remove_place(key, owner)?;
        }
        self.pass_on(key)?;
        Ok(if gave.is_some_and(|until| until > self.now) { Released::Released } else { Released::WasLost })
    }

    /// Gives back a grant that was pushed and reached nobody, unless it became another grant since.
    pub(super) fn hand_back(&mut self, key: &Key, owner: Owner, raw: u64) -> Step<()> {
        if self.rows.remove_grant(key, owner, raw)? {
            self.pass_on(key)?;
        }
        Ok(())
    }

    fn pass_on(&mut self, key: &Key) -> Step<()> {
        if self.rows.head(key)?.is_some() {
            self.settle(key)?;
        }
        Ok(())
    }

    pub(super) fn note(&mut self, stake: &Stake, record: &Record) -> Step<()> {
        let until = self.rows.holds_until(&stake.key, stake.owner)?;
        if until.is_none_or(|until| until <= self.now) {
            return Err(Error::new(ErrorKind::Lost, "the key is not held by this owner any more").into());
        }
        Ok(self.rows.set_note(&stake.key, &record.0, wall_micros())?)
    }

    /// Looks, and changes nothing: not even what has run out.
    pub(super) fn look(&mut self, key: &Key) -> Step<Seen> {
        let mut holders = Vec::new();
        for shown in self.rows.shown(key)? {
            let held = shown.held;
            if held.until <= self.now || self.is_dead(held.client) {
                continue;
            }
            holders.push(Holder {
                owner: Some(held.owner),
                mode: held.mode,
                remaining: span(held.until - self.now),
                raw: Some(shown.raw),
                host: Some(held.host),
                since_unix_ms: Some(shown.since),
                value: shown.value,
            });
        }
        let waiters = self.rows.waiters(key, self.now)?;
        let age = |stored: u64| Duration::from_micros(wall_micros().saturating_sub(stored));
        let note = self.rows.note(key)?.map(|(record, stored)| (Record(record), age(stored)));
        Ok(Seen { holders, waiters, note })
    }

    pub(super) fn list(&mut self, starts_with: &str, after: Option<&Cursor>) -> Step<Page> {
        let (mut from, mut inclusive) = match after {
            Some(cursor) if cursor.0.as_str() >= starts_with => (cursor.0.clone(), false),
            _ => (starts_with.to_owned(), true),
        };
        let mut names: Vec<String> = Vec::new();
        loop {
            let some = self.rows.holds_after(&from, inclusive, PAGE)?;
            let is_all = some.len() < PAGE;
            for (name, until, client) in some {
                if !name.starts_with(starts_with) {
                    return Ok(page(names, None));
                }
                if names.len() == PAGE && names.last() != Some(&name) {
                    let next = names.last().cloned().map(Cursor);
                    return Ok(page(names, next));
                }
                if until > self.now && names.last() != Some(&name) && !self.is_dead(client) {
                    names.push(name.clone());
                }
                (from, inclusive) = (name, false);
            }
            if is_all {
                return Ok(page(names, None));
            }
        }
    }

    /// Removes a few of the holds and places that ran out and that nobody has asked about since.
    pub(super) fn sweep(&mut self, swept: &mut Swept) -> Step<()> {
        let some = self.rows.holds_after(&swept.holds, false, SWEEP)?;
        swept.holds = some.last().map(|(name, ..)| name.clone()).unwrap_or_default();
        for (name, until, _) in some {
            if until <= self.now
                && let Ok(key) = Key::new(name)
            {
                self.settle(&key)?;
            }
        }
        let queue = self.rows.queue_after(&swept.queues)?;
        if let Some(key) = queue.as_ref().and_then(|name| Key::new(name).ok()) {
            self.rows.purge_places(&key, self.now)?;
            self.settle(&key)?;
        }
        swept.queues = queue.unwrap_or_default();
        Ok(())
    }
}

fn page(names: Vec<String>, next: Option<Cursor>) -> Page {
    Page { keys: names.into_iter().filter_map(|name| Key::new(name).ok()).collect(), next }
}

/// A span in nanoseconds, as the rows have it.
fn nanos(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

fn span(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}
