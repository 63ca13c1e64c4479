//! The clients of a run, the store they share, and what a task does with a lease.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use tenure::engine::memory::Memory;
use tenure::engine::{Engine, Mode};
use tenure::{Background, Clock, Error, Key, Lease, Moment, Tenure};
use tokio::time::{Instant, sleep};

use super::setup::Setup;
use crate::broken::{Broken, Side};
use crate::chaos::Chaos;
use crate::judge::{LeaseId, Outcome, Recorder, Watched, What};

/// The runtime's clock, or one that is a little fast or slow.
#[derive(Debug)]
pub(super) struct SimClock {
    start: Instant,
    rate: u64,
}

impl Clock for SimClock {
    fn now(&self) -> Moment {
        // Not from zero, so that spans before the beginning do not saturate.
        let elapsed = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Moment::from_nanos(10_000_000_000 + elapsed / 1000 * self.rate)
    }
}

pub(super) struct Client {
    pub(super) number: u32,
    pub(super) tenure: Tenure,
    pub(super) chaos: Arc<Chaos>,
}

pub(super) struct World {
    pub(super) setup: Setup,
    pub(super) recorder: Recorder,
    pub(super) store: Memory,
    pub(super) clients: Vec<Client>,
    pub(super) keys: Vec<Key>,
    /// What the keys protect: registers that compare tokens. The newest token each has seen.
    registers: Mutex<HashMap<Key, u64>>,
}

impl World {
    pub(super) fn new(seed: u64, setup: Setup, broken: Option<Broken>) -> World {
        let start = Instant::now();
        let clock = Arc::new(SimClock { start, rate: 1000 });
        let store_clock = Arc::new(SimClock { start, rate: setup.store_rate });
        let store = Memory::new(&Background::on_this_runtime_with(seed, store_clock));
        let recorder = Recorder::new(clock.clone());
        let plot = broken.map(|broken| (broken.side(), broken.plot()));
        let clients = (0..setup.clients).map(|number| {
            let own_seed = seed.wrapping_mul(1_000_003).wrapping_add(u64::from(number));
            let background = Background::on_this_runtime_with(own_seed, clock.clone());
            let mut engine: Arc<dyn Engine> = Arc::new(store.client(&background));
            if let Some((Side::Store, plot)) = &plot {
                engine = plot.wrap(engine);
            }
            let chaos = Arc::new(Chaos::new(engine, setup.faults.clone(), own_seed ^ 0xc4a0_5000));
            let mut engine: Arc<dyn Engine> = chaos.clone();
            if let Some((Side::Client, plot)) = &plot {
                engine = plot.wrap(engine);
            }
            let engine = Arc::new(Watched::new(engine, &recorder, number));
            Client { number, tenure: Tenure::with_background(engine, background), chaos }
        });
        let clients = clients.collect();
        let keys = (0..setup.keys).filter_map(|number| Key::new(format!("key/{number}")).ok()).collect();
        World { setup, recorder, store, clients, keys, registers: Mutex::default() }
    }

    /// Asks for a key as `how` says, and writes down what comes of it.
    pub(super) async fn acquire(&self, client: &Client, key: &Key, how: How) -> Option<Held<'_>> {
        let attempt = self.recorder.next_id();
        let record = |what| self.recorder.record(client.number, key, what);
        record(What::AcquireBegins { attempt, mode: Mode::Exclusive });
        let mutex = client.tenure.mutex(key.as_str()).ttl(self.setup.term).renewal(self.setup.renewal);
        let result = match how {
            How::Try => {
                mutex.try_acquire().await.map_err(outcome).and_then(|lease| lease.ok_or(Outcome::Busy))
            }
            How::Within(span) => mutex.acquire_within(span).await.map_err(outcome),
            How::Wait => mutex.acquire().await.map_err(outcome),
            How::CancelAfter(span) => {
                tokio::select! {
                    biased;
                    lease = mutex.acquire() => lease.map_err(outcome),
                    () = sleep(span) => Err(Outcome::Cancelled),
                }
            }
            How::CancelAtPoll(polls) => give_up_at_poll(mutex.acquire(), polls).await,
        };
        match result {
            Ok(lease) => {
                let id = self.recorder.next_id();
                record(What::Acquired {
                    attempt,
                    lease: id,
                    owner: lease.owner(),
                    token: lease.token().get(),
                    valid_until: lease.valid_until(),
                });
                Some(Held { world: self, client: client.number, key: key.clone(), id, lease })
            }
            Err(outcome) => {
                record(What::AcquireEnds { attempt, outcome });
                None
            }
        }
    }

    /// A write to what the key protects, by whoever comes with a token.
    fn write(&self, client: u32, key: &Key, lease: LeaseId, token: u64) {
        let mut registers = self.registers.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = registers.entry(key.clone()).or_default();
        let accepted = token >= *mark;
        *mark = token.max(*mark);
        drop(registers);
        self.recorder.record(client, key, What::Wrote { lease, token, accepted });
    }
}

/// How to ask.
#[derive(Clone, Copy, Debug)]
pub(super) enum How {
    Try,
    Within(Duration),
    Wait,
    CancelAfter(Duration),
    CancelAtPoll(u32),
}

impl How {
    pub(super) fn draw(random: &mut StdRng) -> How {
        let span = |random: &mut StdRng, most: u64| Duration::from_micros(random.random_range(0..most));
        match random.random_range(0..10) {
            0 => How::Try,
            1 => How::CancelAtPoll(random.random_range(1..6)),
            2 => How::CancelAfter(span(random, 5_000)),
            3 => How::CancelAfter(span(random, 2_000_000)),
            4..7 => How::Within(span(random, 6_000_000)),
            _ => How::Wait,
        }
    }
}

/// Drops a future when it is polled for the `polls`th time.
async fn give_up_at_poll(
    acquire: impl Future<Output = tenure::Result<Lease>>,
    polls: u32,
) -> Result<Lease, Outcome> {
    let mut acquire = std::pin::pin!(acquire);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        left = left.saturating_sub(1);
        match acquire.as_mut().poll(cx) {
            std::task::Poll::Ready(lease) => std::task::Poll::Ready(lease.map_err(outcome)),
            std::task::Poll::Pending if left == 0 => std::task::Poll::Ready(Err(Outcome::Cancelled)),
            std::task::Poll::Pending => std::task::Poll::Pending,
        }
    })
    .await
}

fn outcome(error: Error) -> Outcome {
    match error.is_timed_out() {
        true => Outcome::TimedOut,
        false if error.may_have_taken_effect() => Outcome::Unknown(error.to_string()),
        false => Outcome::Failed(error.to_string()),
    }
}

/// A lease in a task's hands.
pub(super) struct Held<'a> {
    world: &'a World,
    client: u32,
    key: Key,
    id: LeaseId,
    lease: Lease,
}

impl Held<'_> {
    fn record(&self, what: What) {
        self.world.recorder.record(self.client, &self.key, what);
    }

    fn state_validity(&self) {
        self.record(What::Stated { lease: self.id, valid_until: self.lease.valid_until() });
    }

    /// Works for a while. False if the lease was lost meanwhile.
    pub(super) async fn work(&self, span: Duration) -> bool {
        let kept = tokio::select! {
            biased;
            _ = self.lease.lost() => false,
            () = sleep(span) => true,
        };
        self.state_validity();
        if !kept {
            self.record(What::ToldLost { lease: self.id });
        }
        kept
    }

    /// A new term. False if the lease was lost meanwhile.
    pub(super) async fn extend(&self, term: Duration) -> bool {
        let kept = tokio::select! {
            biased;
            _ = self.lease.lost() => false,
            // Whatever it comes to: the lease states its validity.
            _ = self.lease.extend(term) => true,
        };
        self.state_validity();
        if !kept {
            self.record(What::ToldLost { lease: self.id });
        }
        kept
    }

    pub(super) fn write(&self) {
        self.world.write(self.client, &self.key, self.id, self.lease.token().get());
    }

    pub(super) async fn release(self) {
        self.state_validity();
        self.record(What::ReleaseBegins { lease: self.id });
        let (world, client, key, id) = (self.world, self.client, self.key, self.id);
        let answer = self.lease.release().await.ok();
        world.recorder.record(client, &key, What::ReleaseEnds { lease: id, answer });
    }

    pub(super) fn drop_it(self) {
        self.state_validity();
        self.record(What::ReleaseBegins { lease: self.id });
    }
}
