//! What the suite needs of an engine that it tests: clients, the truth, and ways to break it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::engine::Engine;
use tenure::{Background, Key, Tenure};

use crate::proxy::Proxy;
use crate::server::Data;

mod memory;
mod redis;
mod sqlite;

pub use memory::MemoryHarness;
pub use redis::{LoneClient, RedisHarness};
pub use sqlite::SqliteHarness;

/// A deployment of one engine, made for one case, and how to look at it and break it from outside.
#[async_trait]
pub trait Harness: Send + Sync {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// A new, independent client of the same store, with threads of its own.
    async fn engine(&self) -> Arc<dyn Engine>;

    /// As [`engine`](Harness::engine), with the core above it.
    async fn tenure(&self) -> Tenure;

    /// Who holds the key, asked without the engine under test where the store allows it: owners as
    /// 32 hexadecimal digits, others as they are.
    async fn truth(&self, key: &Key) -> Vec<String>;

    /// How long the store will keep the hold from now on; `None` if there is none.
    async fn remaining(&self, key: &Key) -> Option<Duration>;

    /// Takes the hold away behind our back, as an operator or an expiry would.
    async fn evict(&self, key: &Key);

    /// Puts somebody else's hold in the place of the one that is there.
    async fn usurp(&self, key: &Key, term: Duration);

    /// What the store holds, but for counters, which are meant to stay.
    async fn leftovers(&self) -> Vec<String>;

    /// The shortest term worth testing with.
    fn ttl(&self) -> Duration;

    /// Ways to break it. `None`: there is nothing between client and store.
    fn faults(&self) -> Option<&dyn Faults>;

    /// The Redis server behind it, for cases about Redis itself.
    fn redis(&self) -> Option<&RedisHarness>;
}

/// Ways to break the line and the server.
#[async_trait]
pub trait Faults: Send + Sync {
    /// The line all clients of the harness share.
    fn line(&self) -> &Proxy;

    /// Freezes the server: it accepts and answers nothing.
    async fn pause(&self);

    /// Lets it go on.
    async fn resume(&self);

    /// Kills the server and starts it again at the same address.
    async fn restart(&self, data: Data);

    /// A client with a line of its own, to be cut off alone.
    async fn lone_client(&self) -> LoneClient;
}

/// Something a case needs and not every harness has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A line that can be cut, held and delayed, and a server that can be paused and restarted.
    Faults,
    /// A line on which messages can be read, and so chosen.
    Words,
    /// A Redis server.
    Redis,
}

impl Need {
    /// Whether a harness has it.
    #[must_use]
    pub fn met_by(self, harness: &dyn Harness) -> bool {
        match self {
            Need::Faults => harness.faults().is_some(),
            Need::Words => harness.redis().is_some_and(RedisHarness::is_readable),
            Need::Redis => harness.redis().is_some(),
        }
    }
}

/// Threads for a client.
fn background() -> Background {
    Background::threads().expect("a test can start threads")
}
