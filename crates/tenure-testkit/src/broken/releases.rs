//! Mistakes with releases and undoing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use tenure::engine::{Answer, Claim, Engine, Released, Renewed, Stake};
use tenure::{Key, Owner, Result};

use super::Shared;
use super::flaw::Flaw;

/// `DEL key`, the oldest mistake of all.
pub(super) struct WithoutOwnerCheck;

#[async_trait]
impl Flaw for WithoutOwnerCheck {
    async fn release(&self, inner: &Arc<dyn Engine>, stake: &Stake) -> Result<Released> {
        for holder in inner.look(&stake.key).await?.holders {
            if let Some(owner) = holder.owner {
                inner.release(&Stake { owner, ..stake.clone() }).await?;
            }
        }
        inner.release(stake).await?;
        Ok(Released::Released)
    }
}

/// Takes a timeout for a *no*.
#[derive(Default)]
pub(super) struct NoUndo(Shared<HashSet<Owner>>);

#[async_trait]
impl Flaw for NoUndo {
    async fn claim(&self, inner: &Arc<dyn Engine>, claim: &Claim) -> Result<Answer> {
        let answer = inner.claim(claim).await;
        if answer.as_ref().is_err_and(tenure::Error::may_have_taken_effect) {
            self.0.lock().insert(claim.owner);
        }
        answer
    }

    async fn release(&self, inner: &Arc<dyn Engine>, stake: &Stake) -> Result<Released> {
        if self.0.lock().contains(&stake.owner) {
            return Ok(Released::WasLost);
        }
        inner.release(stake).await
    }
}

/// One id for each client and key, not for each stay.
#[derive(Default)]
pub(super) struct OwnerReused(Shared<Reused>);

#[derive(Default)]
struct Reused {
    /// Claims that are unknown, and what the store calls their owner.
    undone: HashMap<Key, Vec<Owner>>,
    unknown: HashSet<Owner>,
    /// What the store calls an owner of the core's.
    names: HashMap<Owner, Owner>,
}

impl OwnerReused {
    fn name(&self, owner: Owner) -> Owner {
        self.0.lock().names.get(&owner).copied().unwrap_or(owner)
    }

    fn stake(&self, stake: &Stake) -> Stake {
        Stake { owner: self.name(stake.owner), ..stake.clone() }
    }
}

#[async_trait]
impl Flaw for OwnerReused {
    async fn claim(&self, inner: &Arc<dyn Engine>, claim: &Claim) -> Result<Answer> {
        let owner = {
            let mut state = self.0.lock();
            let undone = state.undone.get_mut(&claim.key).and_then(Vec::pop);
            let owner = undone.or(state.names.get(&claim.owner).copied()).unwrap_or(claim.owner);
            state.names.insert(claim.owner, owner);
            owner
        };
        let answer = inner.claim(&Claim { owner, ..claim.clone() }).await;
        if answer.as_ref().is_err_and(tenure::Error::may_have_taken_effect) {
            self.0.lock().unknown.insert(claim.owner);
        }
        answer
    }

    async fn renew(&self, inner: &Arc<dyn Engine>, stakes: &[Stake]) -> Vec<Renewed> {
        let stakes: Vec<Stake> = stakes.iter().map(|stake| self.stake(stake)).collect();
        inner.renew(&stakes).await
    }

    async fn release(&self, inner: &Arc<dyn Engine>, stake: &Stake) -> Result<Released> {
        let named = self.stake(stake);
        let answer = inner.release(&named).await?;
        let mut state = self.0.lock();
        if state.unknown.remove(&stake.owner) {
            state.undone.entry(stake.key.clone()).or_default().push(named.owner);
        }
        Ok(answer)
    }
}

/// A retry that does not know that its owner has left.
#[derive(Default)]
pub(super) struct ClaimResent(Shared<HashMap<Owner, Claim>>);

#[async_trait]
impl Flaw for ClaimResent {
    async fn claim(&self, inner: &Arc<dyn Engine>, claim: &Claim) -> Result<Answer> {
        self.0.lock().insert(claim.owner, Claim { join: false, ..claim.clone() });
        inner.claim(claim).await
    }

    async fn release(&self, inner: &Arc<dyn Engine>, stake: &Stake) -> Result<Released> {
        let answer = inner.release(stake).await?;
        let claim = self.0.lock().remove(&stake.owner);
        if let Some(claim) = claim {
            inner.claim(&claim).await?;
        }
        Ok(answer)
    }
}

/// Takes the head out of the queue before the key goes on.
pub(super) struct HeadSkipped;

#[async_trait]
impl Flaw for HeadSkipped {
    async fn release(&self, inner: &Arc<dyn Engine>, stake: &Stake) -> Result<Released> {
        let view = inner.look(&stake.key).await?;
        let holds = view.holders.iter().any(|holder| holder.owner == Some(stake.owner));
        if let (true, [head, _, ..]) = (holds, view.waiters.as_slice()) {
            inner.release(&Stake { owner: *head, ..stake.clone() }).await?;
        }
        inner.release(stake).await
    }
}
