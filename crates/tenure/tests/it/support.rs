//! Clients of one memory store on the paused clock of the test's runtime.

use std::sync::Arc;
use std::time::Duration;

use tenure::engine::Engine;
use tenure::engine::memory::Memory;
use tenure::{Background, Tenure};

pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A client of a new store.
pub(crate) fn client() -> (Tenure, Memory) {
    let background = Background::on_this_runtime(1);
    let memory = Memory::new(&background);
    let other = memory.client(&background);
    (Tenure::with_background(Arc::new(memory), background), other)
}

/// Another client of the same store.
pub(crate) fn another(memory: &Memory, seed: u64) -> Tenure {
    let background = Background::on_this_runtime(seed);
    Tenure::with_background(Arc::new(memory.client(&background)), background)
}

/// Lets the background work be done.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn holders(engine: &dyn Engine, key: &str) -> usize {
    engine.look(&tenure::Key::new(key).unwrap()).await.unwrap().holders.len()
}

pub(crate) async fn waiters(engine: &dyn Engine, key: &str) -> usize {
    engine.look(&tenure::Key::new(key).unwrap()).await.unwrap().waiters.len()
}
