//! One Redis server.
//!
//! A lock is one string key under its plain name, `SET … NX PX`, so that programs in other
//! languages that use this convention exclude each other with Tenure. Who waits is queued beside
//! it; a release hands the key to the head of the queue and tells it by one message. Two connections:
//! one for claims, releases and messages, one for renewals. See `docs/engines/redis.md`.

mod actor;
mod answers;
mod calls;
mod connection;
mod lane;
mod link;
mod names;
mod options;
mod outgoing;
mod pushes;
mod refusal;
mod scripts;
mod value;
mod wire;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;

use self::actor::{Actor, Subscriber};
use self::answers::{Entered, FOREIGN_POLL, InTheWay, Said, entered, said, seen, unexpected};
use self::calls::ClaimParts;
use self::connection::{Connection, Request};
use self::lane::{Meters, Shared};
use self::names::Names;
pub use self::options::{Credentials, DEFAULT_REQUEST_LIMIT, Options};
use self::pushes::Pushes;
use self::refusal::{is_no_script, refusal};
use self::wire::{Encoder, Value};
use super::{
    Answer, Busy, Claim, Cursor, Engine, Mode, Page, Record, Released, Renewed, Stake, View, Wake, Woken,
};
use crate::background::Background;
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;
use crate::promises::{Promises, Wakes};
use crate::time::drift;

const ENGINE: &str = "redis";
/// Clients that may wait for one key. The scripts say the same.
const LONGEST_QUEUE: usize = 4096;
/// Renewals in one request, and such requests on the way at a time.
const RENEWALS_TOGETHER: usize = 256;
const RENEWAL_REQUESTS: usize = 16;
/// How often a claim is repeated whose number was too small.
const NUMBER_TRIES: usize = 3;
/// How often a look is worth repeating.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Connects to the server of a URL: `redis://` or `rediss://[user:password@]host[:port][/database]`, or
/// `redis+unix://[user:password@]/path?db=…`, with `?prefix=…`, `max_ttl=…` and, for a private certificate authority, `ca=PATH`. `ttl=…` is left
/// to [`connect`](crate::connect): it is a client's default, not an engine's.
///
/// # Errors
/// `Invalid` for a bad URL; `Denied` for a wrong password or a missing right, which is named;
/// `Unsupported` for a server older than 6.2; `Unavailable` if it cannot be reached.
pub async fn open(url: &str, background: &Background) -> Result<Arc<dyn Engine>> {
    Ok(Arc::new(Redis::options(url)?.connect(background).await?))
}

/// The engine for one Redis server.
pub struct Redis {
    prefix: String,
    counter: Vec<u8>,
    channel: Vec<u8>,
    identity: String,
    longest_term: Duration,
    /// For claims and releases; messages come down it too, so their order is the server's.
    commands: Connection,
    renewals: Connection,
    pushes: Arc<Pushes>,
    background: Background,
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redis").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Options {
    /// Connects, and checks that the server and the user's rights suffice.
    ///
    /// # Errors
    /// As [`open`].
    pub async fn connect(self, background: &Background) -> Result<Redis> {
        let options = Arc::new(self);
        let prefix = options.prefix.clone();
        let renewal_options = Arc::new(options.for_renewals());
        let command_lane =
            Arc::new(Shared::new(options.limit, background.is_on_the_callers_thread(), Meters::new()));
        let renewal_lane = Arc::new(Shared::new(renewal_options.limit, false, Meters::new()));
        let commands = Connection::new(command_lane.clone());
        let renewals = Connection::new(renewal_lane.clone());
        let counter = names::counter(&prefix);
        let channel = names::channel(&prefix, background.owner());
        let pushes = Arc::new(Pushes::new(&prefix, hand_back(&commands, &prefix, &counter)));

        let subscriber = Subscriber { channel: channel.clone(), pushes: pushes.clone() };
        let first = establish_on(background.requests(), &options, Some(channel.clone())).await?;
        let second = establish_on(background.renewals(), &options, None).await?;
        // Here, not only where the connection runs: the first request may be made before that begins.
        command_lane.set_floor(first.floor);
        renewal_lane.set_floor(second.floor);
        // Made here: if the runtime ends before they run, whoever asks must still be told.
        let actor = {
            let _runtime = background.requests().enter();
            Actor::new(command_lane, options.clone(), Some(subscriber))
        };
        background.requests().spawn(actor.run(first));
        let actor = {
            let _runtime = background.renewals().enter();
            Actor::new(renewal_lane, renewal_options, None)
        };
        background.renewals().spawn(actor.run(second));
        Ok(Redis {
            prefix,
            counter,
            channel,
            identity: value::identity(),
            longest_term: options.longest_term,
            commands,
            renewals,
            pushes,
            background: background.clone(),
        })
    }
}

/// Connects on a runtime of the client; again while the server still loads its data.
async fn establish_on(
    runtime: &Handle,
    options: &Arc<Options>,
    channel: Option<Vec<u8>>,
) -> Result<link::Established> {
    let options = options.clone();
    let connecting = runtime.spawn(async move {
        let over = tokio::time::Instant::now() + options.limit;
        loop {
            match link::establish(&options, channel.as_deref(), options.connect_limit).await {
                Err(error) if error.to_string().contains("LOADING") && tokio::time::Instant::now() < over => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                result => return result,
            }
        }
    });
    connecting
        .await
        .unwrap_or_else(|_| Err(Error::new(ErrorKind::Closed, "the client was closed").engine(ENGINE)))
}

/// How a hold that nobody waits for is given back: down the command connection, which it came from.
fn hand_back(commands: &Connection, prefix: &str, counter: &[u8]) -> pushes::HandBack {
    let (commands, prefix, counter) = (commands.downgrade(), prefix.to_owned(), counter.to_vec());
    Box::new(move |(key, owner)| {
        let Some(commands) = commands.upgrade() else { return };
        let Ok(names) = Names::new(&prefix, &key) else { return };
        // If it cannot be sent the hold ends after the short term of a pushed grant.
        if let Err(error) = commands.send(calls::release(names, owner, &counter, commands.floor())) {
            tracing::debug!(%error, "a hold could not be handed back");
        }
    })
}

impl Redis {
    /// Settings from a URL, to be completed.
    ///
    /// # Errors
    /// `Invalid` for a bad URL.
    pub fn options(url: &str) -> Result<Options> {
        Options::from_url(url).map_err(|error| error.operation("connect").engine(ENGINE))
    }

    async fn claim_inner(&self, claim: &Claim) -> Result<Answer> {
        exclusive(claim.mode)?;
        let value = value::encode(claim.owner, &self.identity, value::unix_ms(), &claim.value);
        let parts = ClaimParts {
            names: Names::new(&self.prefix, &claim.key)?,
            owner: claim.owner,
            term: claim.term,
            value: &value,
            join: claim.join,
        };
        let sent = self.background.now();
        let replies = self.commands.ask(calls::enter(&parts, &self.counter)).await?;
        let fresh = match entered(&replies)? {
            Entered::Yes { raw, passed_queue: false } if raw > self.commands.floor() => {
                // Only then did INCR run while the key was held, so that a later holder's is larger.
                if self.background.now().since(sent) + drift(claim.term) >= claim.term {
                    let what = "the answer came after the term that was asked for";
                    return Err(Error::new(ErrorKind::Unavailable, what).maybe());
                }
                // A message about an earlier hold of this owner is out of date: unread, it must not
                // hand this one back.
                self.pushes.forget(claim.owner);
                return Ok(Answer::Granted(super::Grant { raw, term: claim.term, made: true }));
            }
            Entered::Yes { .. } => true,
            Entered::No => false,
        };
        // Boxed, so that the free case stays small.
        let answer = Box::pin(self.settle(claim, &parts, fresh)).await;
        // Whatever became of the script, the first flight made a hold.
        if fresh { answer.map_err(Error::maybe) } else { answer }
    }

    /// Asks by script, where the free case did not do.
    async fn settle(&self, claim: &Claim, parts: &ClaimParts<'_>, fresh: bool) -> Result<Answer> {
        let mailbox = claim.join.then(|| self.pushes.register(&claim.key, claim.owner));
        for attempt in 0..NUMBER_TRIES {
            let floor = self.commands.floor();
            let fresh = fresh && attempt == 0;
            let request = calls::claim(parts, &self.counter, &self.channel, floor, fresh);
            match said(&self.commands.ask_one(request).await?)? {
                // The counter was lost between two requests: ask for a number again, while holding.
                Said::Granted(grant) if grant.raw <= self.commands.floor() => {}
                Said::Granted(grant) => {
                    self.pushes.forget(claim.owner);
                    return Ok(Answer::Granted(grant));
                }
                Said::Busy(way) => {
                    let wake = mailbox.map_or_else(Wake::never, pushes::Registration::into_wake);
                    return Ok(Answer::Busy(self.busy(way, claim.term, wake)));
                }
                Said::Kept(_) | Said::Lost => return Err(unexpected(&[])),
            }
        }
        let what = "the server gives numbers that are too small: its counter and clock are behind";
        Err(Error::new(ErrorKind::Internal, what).maybe().advice("check the server's clock"))
    }

    fn busy(&self, way: InTheWay, term: Duration, wake: Wake) -> Busy {
        let ask_within = way.ask_within(term, || self.background.jitter(FOREIGN_POLL));
        Busy { ahead: way.ahead, wake, ask_within, holder: way.holder }
    }

    /// Sends renewals as one request.
    fn send_renewals(
        &self,
        stakes: &[&Stake],
        in_full: bool,
    ) -> impl Future<Output = Result<Vec<Value>>> + use<> {
        let floor = self.renewals.floor();
        let mut out = Encoder::with_capacity(stakes.len() * 400);
        for (place, stake) in stakes.iter().enumerate() {
            // Names and mode were checked before.
            if let Ok(names) = Names::new(&self.prefix, &stake.key) {
                calls::renew(&mut out, names, stake, &self.counter, floor, in_full && place == 0);
            }
        }
        self.renewals.ask(Request::plain(out.into_bytes(), stakes.len()))
    }

    fn renewed(&self, stake: &Stake, reply: &Value) -> Renewed {
        match said(reply) {
            Ok(Said::Kept(term)) => Renewed::Kept(term),
            Ok(Said::Busy(way)) => {
                let wake = self.pushes.listen_again(stake.owner);
                Renewed::Waiting(self.busy(way, stake.term, wake))
            }
            Ok(Said::Lost) => {
                self.pushes.forget(stake.owner);
                Renewed::Lost
            }
            Ok(Said::Granted(_)) => Renewed::Unknown(renew_error(unexpected(&[]), stake)),
            Err(error) => Renewed::Unknown(renew_error(error, stake)),
        }
    }

    /// Renews what fits into one round of requests.
    async fn renew_round(&self, stakes: &[&Stake]) -> Vec<Renewed> {
        let flights: Vec<_> =
            stakes.chunks(RENEWALS_TOGETHER).map(|some| (some, self.send_renewals(some, false))).collect();
        let mut renewed = Vec::with_capacity(stakes.len());
        for (some, flight) in flights {
            let mut result = flight.await;
            if matches!(&result, Ok(replies) if replies.iter().any(unknown_script)) {
                // Renewing twice is renewing once, so all go again.
                result = self.send_renewals(some, true).await;
            }
            match result {
                Ok(replies) => {
                    renewed.extend(some.iter().zip(&replies).map(|(stake, reply)| self.renewed(stake, reply)))
                }
                Err(error) => {
                    renewed
                        .extend(some.iter().map(|stake| Renewed::Unknown(renew_error(error.clone(), stake))));
                }
            }
        }
        renewed
    }

    async fn list_inner(&self, starts_with: &str, after: Option<Cursor>) -> Result<Page> {
        let cursor = after.map_or_else(|| "0".to_owned(), |cursor| cursor.0);
        if cursor.is_empty() || !cursor.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Error::new(ErrorKind::Invalid, "this cursor is not one of this engine"));
        }
        let reply = self.commands.ask_one(calls::scan(&cursor, &self.prefix, starts_with)).await?;
        let (next, names) = match &reply {
            Value::List(items) => match &items[..] {
                [next, Value::List(names)] => (String::from_utf8_lossy(next.text().unwrap_or(b"0")), names),
                other => return Err(unexpected(other)),
            },
            Value::Error(text) => return Err(refusal(text)),
            other => return Err(unexpected(std::slice::from_ref(other))),
        };
        let names: Vec<&[u8]> = names.iter().filter_map(Value::text).collect();
        let mut keys: Vec<Key> = if names.is_empty() {
            Vec::new()
        } else {
            let beginnings = self.commands.ask(calls::beginnings(&names)).await?;
            // A name that this user may not see is left out; a command that it may not use is told.
            let refused = |it: &&Value| matches!(it, Value::Error(text) if text.starts_with("NOPERM") && text.contains("command"));
            if let Some(Value::Error(text)) = beginnings.iter().find(refused) {
                return Err(refusal(text));
            }
            let locks = names.iter().zip(&beginnings).filter(|(_, begins)| begins.text() == Some(b"t1:"));
            locks.filter_map(|(name, _)| self.key_of(name)).collect()
        };
        keys.sort();
        keys.dedup();
        Ok(Page { keys, next: (next != "0").then(|| Cursor(next.into_owned())) })
    }

    fn key_of(&self, name: &[u8]) -> Option<Key> {
        Key::new(std::str::from_utf8(name).ok()?.strip_prefix(self.prefix.as_str())?).ok()
    }
}

fn exclusive(mode: Mode) -> Result<()> {
    match mode {
        Mode::Exclusive => Ok(()),
        Mode::Shared => Err(Error::new(ErrorKind::Unsupported, "this engine has no shared holds")),
        Mode::Permits { .. } => Err(Error::new(ErrorKind::Unsupported, "this engine has no permits")),
    }
}

fn unknown_script(reply: &Value) -> bool {
    matches!(reply, Value::Error(text) if is_no_script(text))
}

fn renew_error(error: Error, stake: &Stake) -> Error {
    error.operation("renew").key(&stake.key).engine(ENGINE)
}

fn about<'a>(operation: &'static str, key: &'a Key) -> impl FnOnce(Error) -> Error + use<'a> {
    move |error| error.operation(operation).key(key).engine(ENGINE)
}

fn number(reply: &Value) -> Result<u64> {
    match reply {
        Value::Error(text) => Err(refusal(text)),
        other => other.count().ok_or_else(|| unexpected(std::slice::from_ref(other))),
    }
}

/// How its URLs are written.
pub(super) const URLS: &[&str] = &[
    "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]",
    "rediss://… (over TLS)",
    "redis+unix://[USER:PASSWORD@]/PATH",
];

/// What it promises, unless `max_ttl` makes the longest term shorter.
pub(super) fn promises() -> Promises {
    Promises {
        engine: ENGINE,
        shared: false,
        permits: false,
        fifo: true,
        wakes: Wakes::Push,
        notes: true,
        token: "one counter per server and prefix, never below the server's clock in microseconds. Tokens grow as \
                long as the server's clock does not step back across a loss of the counter, a promoted or \
                restored server's clock is at most 10 s behind the one before, no proxy fails over behind an \
                open connection, and nobody sets the counter back in a running server: restart it after \
                restoring keys into it",
        exclusion: "a server clock that steps forward; a restart that lost the last writes (no persistence, or \
                    appendfsync other than always); a fail-over to a replica that had not received them; \
                    eviction, FLUSHALL or DEL of a held key by somebody else",
        shortest_term: options::SHORTEST_TERM,
        longest_term: options::LONGEST_TERM,
        longest_queue: LONGEST_QUEUE,
    }
}

#[async_trait]
impl Engine for Redis {
    fn promises(&self) -> Promises {
        Promises { longest_term: self.longest_term, ..promises() }
    }

    async fn claim(&self, claim: &Claim) -> Result<Answer> {
        self.claim_inner(claim).await.map_err(about("claim", &claim.key))
    }

    async fn renew(&self, stakes: &[Stake]) -> Vec<Renewed> {
        let refused = |stake: &Stake| {
            exclusive(stake.mode).and_then(|()| Names::new(&self.prefix, &stake.key).map(drop))
        };
        let mut answers: Vec<Option<Renewed>> = Vec::with_capacity(stakes.len());
        let mut sound = Vec::with_capacity(stakes.len());
        for stake in stakes {
            let error = refused(stake).err();
            if error.is_none() {
                sound.push(stake);
            }
            answers.push(error.map(|error| Renewed::Unknown(renew_error(error, stake))));
        }
        let mut renewed = Vec::with_capacity(sound.len());
        for round in sound.chunks(RENEWALS_TOGETHER * RENEWAL_REQUESTS) {
            renewed.extend(self.renew_round(round).await);
        }
        let mut renewed = renewed.into_iter();
        let missing = || Renewed::Unknown(unexpected(&[]).engine(ENGINE));
        answers.into_iter().map(|answer| answer.or_else(|| renewed.next()).unwrap_or_else(missing)).collect()
    }

    async fn release(&self, stake: &Stake) -> Result<Released> {
        let release = async {
            exclusive(stake.mode)?;
            let names = Names::new(&self.prefix, &stake.key)?;
            let request = calls::release(names, stake.owner, &self.counter, self.commands.floor());
            let answered = self.commands.ask(request);
            // Only now: a grant that is pushed to nobody is handed back, and that must not come first, for
            // then it would seem that there was nothing left to release.
            self.pushes.forget(stake.owner);
            match number(&answered.await?.pop().unwrap_or(Value::Nil))? {
                0 => Ok(Released::WasLost),
                _ => Ok(Released::Released),
            }
        };
        release.await.map_err(about("release", &stake.key))
    }

    async fn note(&self, stake: &Stake, record: &Record) -> Result<()> {
        let note = async {
            exclusive(stake.mode)?;
            let names = Names::new(&self.prefix, &stake.key)?;
            match number(&self.commands.ask_one(calls::note(names, stake.owner, &record.0)).await?)? {
                0 => Err(Error::new(ErrorKind::Lost, "the stake does not hold the key")),
                _ => Ok(()),
            }
        };
        note.await.map_err(about("note", &stake.key))
    }

    async fn look(&self, key: &Key) -> Result<View> {
        let look = async {
            let names = Names::new(&self.prefix, key)?;
            Ok((seen(&self.commands.ask_one(calls::look(names)).await?)?, names.all()))
        };
        let ((holder, waiters, note), physical) = look.await.map_err(about("look", key))?;
        let runtime = self.background.requests().clone();
        let wake = Wake::new(async move {
            // The caller's runtime may have no timer; an error means that the client was closed.
            let _ = runtime.spawn(async { tokio::time::sleep(LOOK_AGAIN).await }).await;
            Woken::Ask
        });
        Ok(View { holders: holder.into_iter().collect(), waiters, note, physical, wake })
    }

    async fn list(&self, starts_with: &str, after: Option<Cursor>) -> Result<Page> {
        let page = self.list_inner(starts_with, after).await;
        page.map_err(|error| error.operation("list").engine(ENGINE))
    }
}
