//! What a seed decides before a run begins.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tenure::refresh_interval;

use crate::chaos::Faults;
use crate::judge::Expectations;

/// The shape of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// How many clients.
    pub clients: u32,
    /// How many tasks each has.
    pub tasks: u32,
    /// How many keys they want.
    pub keys: u32,
    /// The term of their locks.
    pub term: Duration,
    /// Whether leases are renewed.
    pub renewal: bool,
    /// How fast the store's clock runs, in thousandths of the clients' clocks.
    pub store_rate: u64,
    /// How long things go wrong.
    pub storm: Duration,
    /// What goes wrong.
    pub faults: Faults,
}

impl Setup {
    /// The setup of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Setup {
        let mut random = StdRng::seed_from_u64(seed ^ 0x5e70_9a11);
        let term = [300, 1_000, 3_000, 10_000][random.random_range(0..4)];
        Setup {
            clients: random.random_range(2..=4),
            tasks: random.random_range(1..=3),
            keys: random.random_range(1..=2),
            term: Duration::from_millis(term),
            renewal: random.random_bool(0.8),
            store_rate: [980, 1000, 1020][random.random_range(0..3)],
            storm: Duration::from_millis(random.random_range(4_000..12_000)),
            faults: Faults::swarm(&mut random),
        }
    }

    /// The longest term that an extension asks for.
    #[must_use]
    pub fn longest_term(&self) -> Duration {
        self.term * 2
    }

    /// How long what was broken may have consequences: an unknown claim is undone, or has its term;
    /// a place has three refreshes, and so has a hand-over that nobody hears of.
    #[must_use]
    pub fn settling(&self) -> Duration {
        self.longest_term() + refresh_interval(self.term) * 6 + self.faults.limit * 4
    }

    /// What may be expected of the run.
    #[must_use]
    pub fn expectations(&self, fifo: bool) -> Expectations {
        let refresh = refresh_interval(self.term);
        Expectations {
            // A waiter that the store cannot tell is skipped; that is no breach of the promise.
            fifo: fifo && self.faults.deaf == 0,
            term: self.longest_term(),
            refresh,
            request_limit: self.faults.limit,
            slack: refresh / 10 + Duration::from_millis(50),
            patience: self.settling() + Duration::from_millis(500) * self.clients * self.tasks,
            woken_in_vain: 0,
        }
    }
}
