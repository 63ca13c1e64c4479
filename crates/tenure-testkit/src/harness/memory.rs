//! The memory engine: a store in this process, with nothing between it and its clients.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rand::Rng;
use tenure::engine::memory::Memory;
use tenure::engine::{Claim, Engine, Holder, Mode, Stake};
use tenure::{Background, Key, Owner, Tenure};

use super::{Faults, Harness, RedisHarness, background};

/// A store of its own.
#[derive(Debug)]
pub struct MemoryHarness {
    store: Memory,
    // The store's clock.
    _background: Background,
}

impl Default for MemoryHarness {
    fn default() -> MemoryHarness {
        let background = background();
        MemoryHarness { store: Memory::new(&background), _background: background }
    }
}

impl MemoryHarness {
    /// There is no other way into this store than the engine; a client that nobody else uses asks.
    async fn holders(&self, key: &Key) -> Vec<Holder> {
        self.store.look(key).await.expect("the memory engine answers").holders
    }
}

#[async_trait]
impl Harness for MemoryHarness {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        Arc::new(self.store.client(&background()))
    }

    async fn tenure(&self) -> Tenure {
        let background = background();
        Tenure::with_background(Arc::new(self.store.client(&background)), background)
    }

    async fn truth(&self, key: &Key) -> Vec<String> {
        let owner = |holder: Holder| holder.owner.map_or_else(String::new, |owner| owner.to_string());
        self.holders(key).await.into_iter().map(owner).collect()
    }

    async fn remaining(&self, key: &Key) -> Option<Duration> {
        self.holders(key).await.into_iter().map(|holder| holder.remaining).max()
    }

    async fn evict(&self, key: &Key) {
        for holder in self.holders(key).await {
            let Some(owner) = holder.owner else { continue };
            let stake = Stake { key: key.clone(), owner, mode: holder.mode, term: self.ttl(), raw: None };
            self.store.release(&stake).await.expect("the memory engine answers");
        }
    }

    async fn usurp(&self, key: &Key, term: Duration) {
        self.evict(key).await;
        let owner = Owner::from_id(rand::rng().random());
        let claim =
            Claim { key: key.clone(), owner, mode: Mode::Exclusive, term, value: Vec::new(), join: false };
        self.store.claim(&claim).await.expect("the memory engine answers");
    }

    async fn leftovers(&self) -> Vec<String> {
        let census = self.store.census();
        let counts =
            [("holders", census.holders), ("waiters", census.waiters), ("listeners", census.listeners)];
        counts.iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{count} {what}")).collect()
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(300)
    }

    fn faults(&self) -> Option<&dyn Faults> {
        None
    }

    fn redis(&self) -> Option<&RedisHarness> {
        None
    }
}
