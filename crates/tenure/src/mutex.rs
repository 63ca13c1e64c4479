//! A distributed mutex.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing::Instrument as _;

use crate::client::Tenure;
use crate::engine::Mode;
use crate::error::{Error, ErrorKind, Result};
use crate::hold::Settings;
use crate::key::Key;
use crate::lease::Lease;
use crate::line::{Line, closed};
use crate::observe::ClassMeters;
use crate::place::InTheWay;
use crate::retry::Retry;
use crate::time::check_term;

/// The longest value of a holder, in bytes.
pub const MAX_VALUE_BYTES: usize = 4096;

/// A lock on one key: at most one valid lease at a time, as far as the engine's
/// [promises](crate::Promises) go.
///
/// Made by [`Tenure::mutex`]; cheap to clone. Tasks of one client that acquire the same key take
/// turns on one hold. It is not re-entrant: a task that acquires what it holds waits for itself.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tenure::Result<()> {
/// let tenure = tenure::connect("memory:").await?;
/// let lease = tenure.mutex("orders/42").acquire().await?;
/// assert!(lease.is_held());
/// lease.release().await?;
/// # tenure.close().await }
/// ```
#[derive(Clone)]
pub struct Mutex {
    tenure: Tenure,
    key: Result<Key>,
    term: Duration,
    renewal: bool,
    value: Arc<[u8]>,
    meters: Arc<ClassMeters>,
    prepared: OnceLock<Prepared>,
}

/// What was checked when it was first acquired.
#[derive(Clone)]
struct Prepared {
    line: Arc<Line>,
    settings: Arc<Settings>,
}

impl Mutex {
    pub(crate) fn new(tenure: Tenure, key: &str) -> Mutex {
        let meters = tenure.class_meters(None);
        let term = tenure.default_term();
        Mutex {
            tenure,
            key: Key::new(key),
            term,
            renewal: true,
            value: Arc::default(),
            meters,
            prepared: OnceLock::new(),
        }
    }

    fn changed(mut self, change: impl FnOnce(&mut Mutex)) -> Mutex {
        change(&mut self);
        self.prepared = OnceLock::new();
        self
    }

    /// The term: how long the lock stays taken after its holder died. Unless said, it is the client's:
    /// the `ttl` of its URL, or 30 s.
    ///
    /// A short one frees the key sooner after a crash and is lost sooner when the store does not
    /// answer. Bounds are the engine's ([`Promises`](crate::Promises)); fractions of a millisecond
    /// are rounded up. A term out of bounds is refused when acquiring, before anything is sent.
    #[must_use]
    pub fn ttl(self, term: Duration) -> Mutex {
        self.changed(|lock| lock.term = term)
    }

    /// Whether the client prolongs the lease for as long as it is held. On unless said.
    ///
    /// Without renewal the term is the longest hold, and each task of a client has a grant of its own.
    #[must_use]
    pub fn renewal(self, renewal: bool) -> Mutex {
        self.changed(|lock| lock.renewal = renewal)
    }

    /// Names the class of this lock, the label of its metrics. Use few: one for each kind of work,
    /// never one for each key.
    #[must_use]
    pub fn class(self, class: &'static str) -> Mutex {
        self.changed(|lock| lock.meters = lock.tenure.class_meters(Some(class)))
    }

    /// What others see beside the holder, at most [`MAX_VALUE_BYTES`]. Empty unless said. A longer one is
    /// refused when acquiring.
    #[must_use]
    pub fn value(self, value: impl AsRef<[u8]>) -> Mutex {
        self.changed(|lock| lock.value = value.as_ref().into())
    }

    /// Waits until the lock is acquired, for as long as it takes.
    ///
    /// # Fairness
    /// First come, first served among the tasks of a client; among clients where the engine promises
    /// `fifo`. After 1,000 turns or 50 ms the tasks of one client queue up behind other clients.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the place in the queue. A grant that arrives afterwards is given
    /// back at once; nothing stays behind. A future that is kept, but not polled any more, is no
    /// dropped one: a grant that arrives for it lasts for its term.
    ///
    /// # Errors
    /// `Invalid` for a key or term that is not allowed, `NotALock` if the key holds something else,
    /// `Unavailable` if the store does not answer (within its time limit when claiming, within 5 s
    /// while waiting), `Full` if a queue is at its bound, `Closed` after [`Tenure::close`].
    pub async fn acquire(&self) -> Result<Lease> {
        let span = self.span("acquire");
        let attempt = Attempt::begin(self);
        let result = self.enter(true, None).instrument(span).await.and_then(|lease| lease.ok_or_else(closed));
        attempt.end(self.complete("acquire", result))
    }

    /// Acquires the lock if it is free right now: one request. `None` if it is not.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Mutex::acquire).
    ///
    /// # Errors
    /// As for [`acquire`](Mutex::acquire).
    pub async fn try_acquire(&self) -> Result<Option<Lease>> {
        let span = self.span("try_acquire");
        let attempt = Attempt::begin(self);
        let result = self.enter(false, None).instrument(span).await;
        attempt.end_try(self.complete("try_acquire", result))
    }

    /// Waits up to `wait` for the lock. Zero means one try.
    ///
    /// # Fairness
    /// As for [`acquire`](Mutex::acquire).
    ///
    /// # Cancel safety
    /// As for [`acquire`](Mutex::acquire).
    ///
    /// # Errors
    /// `TimedOut` if it was not granted in time, with who is in the way where that is known; else as
    /// for [`acquire`](Mutex::acquire).
    pub async fn acquire_within(&self, wait: Duration) -> Result<Lease> {
        let span = self.span("acquire_within");
        let attempt = Attempt::begin(self);
        let result = self.enter(!wait.is_zero(), Some(wait)).instrument(span).await;
        let result = result.and_then(|lease| lease.ok_or_else(|| timed_out(wait, &InTheWay::default())));
        attempt.end(self.complete("acquire_within", result))
    }

    /// Tries as often as `retry` says, with its pauses, and never queues: who waits in a queue comes first.
    /// For a lock that may be held for long, where nobody should hold a place in a queue meanwhile, and for
    /// outages: a store that does not answer is tried again, unlike with the other methods.
    ///
    /// # Fairness
    /// None.
    ///
    /// # Cancel safety
    /// As for [`acquire`](Mutex::acquire). Between two tries nothing is asked and nothing is stored.
    ///
    /// # Errors
    /// What the last try met, with how many there were: `TimedOut` if somebody else held it, `Unavailable`
    /// if the store did not answer. All other errors of [`acquire`](Mutex::acquire) end it at once, as does
    /// a policy that is out of bounds (`Invalid`).
    pub async fn acquire_retrying(&self, retry: &Retry) -> Result<Lease> {
        let span = self.span("acquire_retrying");
        let attempt = Attempt::begin(self);
        let result = self.retrying(retry).instrument(span).await;
        attempt.end(self.complete("acquire_retrying", result))
    }

    /// How many other clients wait for the key before this one, while it waits itself, as of the last answer
    /// of the engine. `None` while it does not wait, or where the engine keeps no queue.
    #[must_use]
    pub fn ahead(&self) -> Option<usize> {
        self.prepared.get()?.line.in_the_way().ahead
    }

    fn span(&self, name: &'static str) -> tracing::Span {
        let key = self.key.as_ref().map(Key::as_str).unwrap_or_default();
        tracing::debug_span!("tenure", operation = name, key, engine = self.tenure.core().promises.engine)
    }

    fn complete<T>(&self, operation: &'static str, result: Result<T>) -> Result<T> {
        result.map_err(|error| {
            let error = error.called(operation).engine(self.tenure.core().promises.engine);
            match &self.key {
                Ok(key) => error.key(key),
                Err(_) => error,
            }
        })
    }

    /// Checks key and term, once.
    fn prepare(&self) -> Result<&Prepared> {
        if let Some(prepared) = self.prepared.get() {
            return Ok(prepared);
        }
        let core = self.tenure.core();
        let key = self.key.clone()?;
        if self.value.len() > MAX_VALUE_BYTES {
            let what =
                format!("a value has at most {MAX_VALUE_BYTES} bytes, this one has {}", self.value.len());
            return Err(Error::new(ErrorKind::Invalid, what));
        }
        let settings = Settings {
            term: check_term(self.term, &core.promises)?,
            renewal: self.renewal,
            value: self.value.clone(),
            meters: self.meters.clone(),
        };
        let prepared = Prepared { line: core.line(&key, Mode::Exclusive), settings: Arc::new(settings) };
        Ok(self.prepared.get_or_init(|| prepared))
    }

    async fn retrying(&self, retry: &Retry) -> Result<Lease> {
        let mut tries = retry.begin()?;
        loop {
            let last = match self.enter(false, None).await {
                Ok(Some(lease)) => return Ok(lease),
                Ok(None) => Error::new(ErrorKind::TimedOut, "somebody else holds it"),
                Err(error) if error.kind() == ErrorKind::Unavailable => error,
                Err(error) => return Err(error),
            };
            if !tries.again(&self.tenure.core().background).await {
                return Err(tries.in_vain(last));
            }
        }
    }

    async fn enter(&self, joins: bool, wait: Option<Duration>) -> Result<Option<Lease>> {
        let Prepared { line, settings } = self.prepare()?;
        let Some(mut waiting) = line.join(self.tenure.core(), settings, joins)? else { return Ok(None) };
        let reply = match wait.filter(|wait| !wait.is_zero()) {
            None => waiting.turn().await,
            Some(wait) => match tokio::time::timeout(wait, waiting.turn()).await {
                Ok(reply) => reply,
                Err(_) => return Err(timed_out(wait, &waiting.in_the_way())),
            },
        };
        Ok(reply?.map(|turn| Lease::new(self.tenure.clone(), turn)))
    }
}

fn timed_out(wait: Duration, in_the_way: &InTheWay) -> Error {
    let mut what = match wait.is_zero() {
        true => "somebody else holds it, and the wait is zero".to_owned(),
        false => format!("not granted within {wait:?}"),
    };
    if let Some(holder) = &in_the_way.holder {
        what.push_str("; held by ");
        what.push_str(holder);
    }
    if let Some(ahead) = in_the_way.ahead.filter(|ahead| *ahead > 0) {
        what.push_str(&format!("; {ahead} waited before us"));
    }
    Error::new(ErrorKind::TimedOut, what)
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Mutex");
        if let Ok(key) = &self.key {
            debug.field("key", key);
        }
        debug.field("term", &self.term).field("renewal", &self.renewal).finish_non_exhaustive()
    }
}

/// Counts one attempt, also if it is dropped.
struct Attempt<'a> {
    mutex: &'a Mutex,
    began: crate::time::Moment,
}

impl<'a> Attempt<'a> {
    fn begin(mutex: &'a Mutex) -> Attempt<'a> {
        mutex.meters.waiters.increment(1.0);
        Attempt { mutex, began: mutex.tenure.core().background.now() }
    }

    fn end(self, result: Result<Lease>) -> Result<Lease> {
        let meters = &self.mutex.meters;
        match &result {
            Ok(_) => self.granted(),
            Err(error) if error.is_timed_out() => meters.timed_out.increment(1),
            Err(_) => meters.error.increment(1),
        }
        result
    }

    fn end_try(self, result: Result<Option<Lease>>) -> Result<Option<Lease>> {
        let meters = &self.mutex.meters;
        match &result {
            Ok(Some(_)) => self.granted(),
            Ok(None) => meters.busy.increment(1),
            Err(_) => meters.error.increment(1),
        }
        result
    }

    fn granted(&self) {
        let meters = &self.mutex.meters;
        meters.granted.increment(1);
        meters.wait.record(self.mutex.tenure.core().background.now().since(self.began).as_secs_f64());
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.mutex.meters.waiters.decrement(1.0);
    }
}
