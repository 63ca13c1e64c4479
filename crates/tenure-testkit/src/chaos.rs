//! Chaos: an engine around another one that breaks what can break between a client and its store.
//!
//! It is seeded: with the same seed and the same requests in the same order, the same faults happen.
//! It invents nothing that a network and a store cannot do: what a request asked for is done once or
//! more often, late or never, within the request's time limit, and the answer comes, comes late or
//! is lost. So every engine and every core must be sound under it.

mod wake;

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tenure::engine::{Answer, Busy, Claim, Cursor, Engine, Page, Record, Released, Renewed, Stake, View};
use tenure::{Error, ErrorKind, Key, Promises, Result};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// What may go wrong, and how often: chances are in thousandths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The usual longest delay of each way.
    pub delay: Duration,
    /// A request, or an answer, is delayed by up to half the time limit.
    pub slow: u32,
    /// A request never arrives.
    pub lost_request: u32,
    /// A request is carried out and its answer never arrives.
    pub lost_reply: u32,
    /// The line is cut soon after sending: the error comes early, the request may be carried out
    /// later, after its undo.
    pub cut: u32,
    /// A request arrives twice; a renewal or release may arrive a second time much later.
    pub duplicate: u32,
    /// A push is lost after the store counted it as delivered.
    pub lost_push: u32,
    /// A push is late.
    pub late_push: u32,
    /// A waiter's subscription breaks: the store finds nobody to tell.
    pub deaf: u32,
    /// Whether whoever drives the run cuts clients off for a while ([`Chaos::cut_off`]).
    pub partitions: bool,
    /// The time limit of a request, which is then answered `Unavailable`, *maybe*.
    pub limit: Duration,
}

impl Faults {
    /// Nothing goes wrong.
    #[must_use]
    pub fn none() -> Faults {
        Faults {
            delay: Duration::ZERO,
            slow: 0,
            lost_request: 0,
            lost_reply: 0,
            cut: 0,
            duplicate: 0,
            lost_push: 0,
            late_push: 0,
            deaf: 0,
            partitions: false,
            limit: Duration::from_secs(2),
        }
    }

    /// A swarm member: each fault is off altogether in some runs, since a fault that is always there
    /// hides what happens without it.
    #[must_use]
    pub fn swarm(random: &mut impl Rng) -> Faults {
        let mut chance = |most: u32| if random.random_bool(0.5) { random.random_range(1..=most) } else { 0 };
        Faults {
            delay: Duration::from_micros(u64::from(chance(40_000))),
            slow: chance(200),
            lost_request: chance(80),
            lost_reply: chance(80),
            cut: chance(80),
            duplicate: chance(150),
            lost_push: chance(300),
            late_push: chance(400),
            deaf: chance(200),
            partitions: chance(1) > 0,
            limit: Duration::from_secs(2),
        }
    }
}

/// An engine that breaks now and then. One for each client: it is the client's line to the store.
pub struct Chaos {
    inner: Arc<dyn Engine>,
    line: Arc<Line>,
}

/// What one client's requests and pushes go through.
struct Line {
    state: Mutex<State>,
}

struct State {
    faults: Faults,
    random: StdRng,
    /// Cut off until then.
    off_until: Option<Instant>,
    dead: bool,
}

/// What happens to one request, drawn when it is sent.
struct Plan {
    before: Duration,
    after: Duration,
    lost_request: bool,
    lost_reply: bool,
    /// When the caller is told that nothing is known.
    limit: Duration,
    twice: bool,
    /// A second copy arrives as late as this.
    again: Option<Duration>,
}

/// Which copies of a request the network may make.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Copies {
    /// One right behind the first: a claim is undone when its time limit is over, so no copy of it
    /// may come later than that.
    Close,
    /// Also one that comes much later.
    Late,
}

impl Chaos {
    /// Chaos in front of `inner`, for one client.
    #[must_use]
    pub fn new(inner: Arc<dyn Engine>, faults: Faults, seed: u64) -> Chaos {
        let state = State { faults, random: StdRng::seed_from_u64(seed), off_until: None, dead: false };
        Chaos { inner, line: Arc::new(Line { state: Mutex::new(state) }) }
    }

    /// From here on nothing goes wrong any more, and a cut-off ends. What was delayed still comes.
    pub fn calm(&self) {
        let mut state = self.line.lock();
        state.faults = Faults { limit: state.faults.limit, ..Faults::none() };
        state.off_until = None;
    }

    /// Cuts the client off for a while: no request, answer or push gets through.
    pub fn cut_off(&self, span: Duration) {
        self.line.lock().off_until = Some(Instant::now() + span);
    }

    /// Cuts the client off for good, as if it had died: the store still counts its pushes.
    pub fn die(&self) {
        self.line.lock().dead = true;
    }

    /// Sends a request and says what comes back. It is carried out in a task of its own: dropping the
    /// future takes nothing back.
    async fn pass<T, F, W>(&self, copies: Copies, work: W) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send,
        W: Fn(Arc<dyn Engine>) -> F + Send + Sync + 'static,
    {
        let plan = self.line.plan();
        let give_up = Instant::now() + plan.limit;
        let (inner, line) = (self.inner.clone(), self.line.clone());
        let request = tokio::spawn(async move {
            sleep(plan.before).await;
            if plan.lost_request || line.is_off() {
                return None;
            }
            let answer = work(inner.clone()).await;
            if plan.twice {
                drop(work(inner.clone()).await);
            }
            if let Some(later) = plan.again.filter(|_| copies == Copies::Late) {
                // A copy that was held up somewhere.
                tokio::spawn(async move {
                    sleep(later).await;
                    drop(work(inner).await);
                });
            }
            sleep(plan.after).await;
            (!plan.lost_reply && !line.is_off()).then_some(answer)
        });
        match timeout_at(give_up, request).await {
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Err(failed)) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            _ => {
                sleep_until(give_up).await;
                Err(self.no_answer())
            }
        }
    }

    fn no_answer(&self) -> Error {
        Error::new(ErrorKind::Unavailable, "no answer came within the time limit")
            .maybe()
            .engine(self.inner.promises().engine)
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing gets through now.
    fn is_off(&self) -> bool {
        let state = self.lock();
        state.dead || state.off_until.is_some_and(|until| Instant::now() < until)
    }

    fn plan(&self) -> Plan {
        let mut state = self.lock();
        let faults = state.faults.clone();
        let limit = faults.limit;
        let before = state.delay();
        let after = state.delay();
        let cut = state.chance(faults.cut);
        let early = state.span(limit / 20);
        Plan {
            before,
            after,
            lost_request: state.chance(faults.lost_request),
            lost_reply: state.chance(faults.lost_reply),
            limit: if cut { early } else { limit },
            twice: state.chance(faults.duplicate),
            again: state.chance(faults.duplicate).then(|| state.span(limit)),
        }
    }
}

impl State {
    fn chance(&mut self, thousandths: u32) -> bool {
        // Drawn in any case, so that one fault more or less does not shift all others.
        self.random.random_range(0..1000) < thousandths
    }

    fn span(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.random.random_range(0..=most))
    }

    fn delay(&mut self) -> Duration {
        let slow = self.faults.slow;
        let most = if self.chance(slow) { self.faults.limit / 2 } else { self.faults.delay };
        self.span(most)
    }
}

impl fmt::Debug for Chaos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chaos({:?}, {:?})", self.line.lock().faults, self.inner)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Engine for Chaos {
    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    async fn claim(&self, claim: &Claim) -> Result<Answer> {
        let asked = claim.clone();
        let line = self.line.clone();
        let way = self.line.draw_way();
        let answer = self.pass(Copies::Close, move |inner| {
            let (asked, line) = (asked.clone(), line.clone());
            async move {
                match inner.claim(&asked).await {
                    Ok(Answer::Busy(busy)) => {
                        Ok(Answer::Busy(Busy { wake: wake::through(line, busy.wake, way), ..busy }))
                    }
                    other => other,
                }
            }
        });
        answer.await?
    }

    async fn renew(&self, stakes: &[Stake]) -> Vec<Renewed> {
        let asked = stakes.to_vec();
        let answer = self.pass(Copies::Late, move |inner| {
            let asked = asked.clone();
            async move { inner.renew(&asked).await }
        });
        match answer.await {
            Ok(answers) => answers,
            Err(error) => stakes.iter().map(|_| Renewed::Unknown(error.clone())).collect(),
        }
    }

    async fn release(&self, stake: &Stake) -> Result<Released> {
        let asked = stake.clone();
        let answer = self.pass(Copies::Late, move |inner| {
            let asked = asked.clone();
            async move { inner.release(&asked).await }
        });
        answer.await?
    }

    async fn note(&self, stake: &Stake, record: &Record) -> Result<()> {
        let asked = (stake.clone(), record.clone());
        let answer = self.pass(Copies::Late, move |inner| {
            let (stake, record) = asked.clone();
            async move { inner.note(&stake, &record).await }
        });
        answer.await?
    }

    async fn look(&self, key: &Key) -> Result<View> {
        let key = key.clone();
        let answer = self.pass(Copies::Late, move |inner| {
            let key = key.clone();
            async move { inner.look(&key).await }
        });
        answer.await?
    }

    async fn list(&self, starts_with: &str, after: Option<Cursor>) -> Result<Page> {
        let asked = (starts_with.to_owned(), after);
        let answer = self.pass(Copies::Late, move |inner| {
            let (starts_with, after) = asked.clone();
            async move { inner.list(&starts_with, after).await }
        });
        answer.await?
    }
}
