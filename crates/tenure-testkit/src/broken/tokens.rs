//! Mistakes with numbers.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use tenure::engine::{Answer, Claim, Engine, Grant, Released, Stake};
use tenure::{Key, Owner, Result};

use super::Shared;
use super::flaw::{Flaw, change_grants};

/// The counter lives with the lock, and goes with it.
#[derive(Default)]
pub(super) struct Restarts(Arc<Shared<HashMap<Key, Counter>>>);

#[derive(Default)]
struct Counter {
    /// What was counted when the key was free for the last time.
    base: u64,
    last: u64,
}

#[async_trait]
impl Flaw for Restarts {
    async fn claim(&self, inner: &Arc<dyn Engine>, claim: &Claim) -> Result<Answer> {
        let (counters, key) = (self.0.clone(), claim.key.clone());
        let change = move |grant: Grant| {
            let mut counters = counters.lock();
            let counter = counters.entry(key.clone()).or_default();
            counter.last = counter.last.max(grant.raw);
            Grant { raw: grant.raw.saturating_sub(counter.base).max(1), ..grant }
        };
        Ok(change_grants(inner.claim(claim).await?, change))
    }

    async fn release(&self, inner: &Arc<dyn Engine>, stake: &Stake) -> Result<Released> {
        let answer = inner.release(stake).await?;
        if inner.look(&stake.key).await?.holders.is_empty() {
            let mut counters = self.0.lock();
            let counter = counters.entry(stake.key.clone()).or_default();
            counter.base = counter.last;
        }
        Ok(answer)
    }
}

/// Takes a number first, like at a bakery, and then asks to enter.
#[derive(Default)]
pub(super) struct MintedBefore(Shared<Bakery>);

#[derive(Default)]
struct Bakery {
    last: u64,
    taken: HashMap<Owner, u64>,
}

#[async_trait]
impl Flaw for MintedBefore {
    async fn claim(&self, inner: &Arc<dyn Engine>, claim: &Claim) -> Result<Answer> {
        let raw = {
            let mut bakery = self.0.lock();
            let Bakery { last, taken } = &mut *bakery;
            *taken.entry(claim.owner).or_insert_with(|| {
                *last += 1;
                *last
            })
        };
        Ok(change_grants(inner.claim(claim).await?, move |grant| Grant { raw, ..grant }))
    }
}
