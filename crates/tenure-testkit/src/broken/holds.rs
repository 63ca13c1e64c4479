//! Mistakes with how long a hold lasts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::engine::{Answer, Claim, Engine, Grant, Released, Renewed, Stake};
use tenure::{Owner, Result};
use tokio::time::Instant;

use super::Shared;
use super::flaw::Flaw;

/// Starts its stopwatch when the answer is there: the term looks longer by the round trip.
pub(super) struct AfterReply;

#[async_trait]
impl Flaw for AfterReply {
    async fn claim(&self, inner: &Arc<dyn Engine>, claim: &Claim) -> Result<Answer> {
        let sent = Instant::now();
        match inner.claim(claim).await? {
            Answer::Granted(grant) => {
                Ok(Answer::Granted(Grant { term: grant.term + sent.elapsed(), ..grant }))
            }
            busy @ Answer::Busy(_) => Ok(busy),
        }
    }

    async fn renew(&self, inner: &Arc<dyn Engine>, stakes: &[Stake]) -> Vec<Renewed> {
        let sent = Instant::now();
        let answers = inner.renew(stakes).await;
        let late = |answer| match answer {
            Renewed::Kept(term) => Renewed::Kept(term + sent.elapsed()),
            other => other,
        };
        answers.into_iter().map(late).collect()
    }
}

/// `SET` where `PEXPIRE` would do.
pub(super) struct Recreates;

#[async_trait]
impl Flaw for Recreates {
    async fn renew(&self, inner: &Arc<dyn Engine>, stakes: &[Stake]) -> Vec<Renewed> {
        let mut answers = inner.renew(stakes).await;
        for (stake, answer) in stakes.iter().zip(&mut answers) {
            if !matches!(answer, Renewed::Lost) {
                continue;
            }
            let claim = Claim {
                key: stake.key.clone(),
                owner: stake.owner,
                mode: stake.mode,
                term: stake.term,
                value: Vec::new(),
                join: false,
            };
            if let Ok(Answer::Granted(grant)) = inner.claim(&claim).await {
                *answer = Renewed::Kept(grant.term);
            }
        }
        answers
    }
}

/// Does not look at what the store says.
pub(super) struct AlwaysKept;

#[async_trait]
impl Flaw for AlwaysKept {
    async fn renew(&self, inner: &Arc<dyn Engine>, stakes: &[Stake]) -> Vec<Renewed> {
        let answers = inner.renew(stakes).await;
        let kept = |(stake, answer): (&Stake, Renewed)| match answer {
            Renewed::Lost => Renewed::Kept(stake.term),
            other => other,
        };
        stakes.iter().zip(answers).map(kept).collect()
    }
}

/// Hands over with the full term, so that a dead waiter costs all of it.
#[derive(Default)]
pub(super) struct FullTerm(Shared<HashMap<Owner, Duration>>);

#[async_trait]
impl Flaw for FullTerm {
    async fn claim(&self, inner: &Arc<dyn Engine>, claim: &Claim) -> Result<Answer> {
        self.0.lock().insert(claim.owner, claim.term);
        inner.claim(claim).await
    }

    async fn release(&self, inner: &Arc<dyn Engine>, stake: &Stake) -> Result<Released> {
        let answer = inner.release(stake).await?;
        for holder in inner.look(&stake.key).await?.holders {
            let Some(owner) = holder.owner else { continue };
            let term = self.0.lock().get(&owner).copied();
            if let Some(term) = term {
                inner.renew(&[Stake { owner, mode: holder.mode, term, ..stake.clone() }]).await;
            }
        }
        Ok(answer)
    }
}
