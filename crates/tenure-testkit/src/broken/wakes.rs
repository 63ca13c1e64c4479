//! Mistakes with waking.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use tenure::engine::{Answer, Busy, Claim, Engine, Grant, Released, Renewed, Stake, Wake, Woken};
use tenure::{Key, Owner, Result, refresh_interval};
use tokio::sync::oneshot;

use super::Shared;
use super::flaw::{Flaw, change_wake};

/// Hands over in silence.
#[derive(Default)]
pub(super) struct NotWoken(Shared<HashSet<Owner>>);

#[async_trait]
impl Flaw for NotWoken {
    async fn claim(&self, inner: &Arc<dyn Engine>, claim: &Claim) -> Result<Answer> {
        match inner.claim(claim).await? {
            Answer::Busy(busy) if busy.ahead.is_some() => {
                self.0.lock().insert(claim.owner);
                // Heard and kept to itself.
                Ok(Answer::Busy(change_wake(busy, |wake| async {
                    wake.await;
                    std::future::pending().await
                })))
            }
            other => Ok(other),
        }
    }

    async fn renew(&self, inner: &Arc<dyn Engine>, stakes: &[Stake]) -> Vec<Renewed> {
        let answers = inner.renew(stakes).await;
        let silent = |(stake, answer): (&Stake, Renewed)| match answer {
            Renewed::Kept(_) if self.0.lock().contains(&stake.owner) => Renewed::Waiting(Busy {
                ahead: Some(0),
                wake: Wake::never(),
                ask_within: refresh_interval(stake.term),
                holder: None,
            }),
            other => other,
        };
        stakes.iter().zip(answers).map(silent).collect()
    }
}

/// Tells everybody who waits that something has changed.
#[derive(Default)]
pub(super) struct Everyone {
    waiting: Shared<HashMap<Key, Vec<oneshot::Sender<()>>>>,
    /// Wakes that were answered for: kept, so that their places can still be handed to.
    kept: Arc<Shared<Vec<Wake>>>,
}

#[async_trait]
impl Flaw for Everyone {
    async fn claim(&self, inner: &Arc<dyn Engine>, claim: &Claim) -> Result<Answer> {
        let answer = inner.claim(claim).await?;
        let Answer::Busy(busy) = answer else { return Ok(answer) };
        if busy.ahead.is_none() {
            return Ok(Answer::Busy(busy));
        }
        let (tell, told) = oneshot::channel();
        self.waiting.lock().entry(claim.key.clone()).or_default().push(tell);
        let kept = self.kept.clone();
        Ok(Answer::Busy(change_wake(busy, |mut wake| async move {
            tokio::select! {
                biased;
                woken = &mut wake => woken,
                Ok(()) = told => {
                    kept.lock().push(wake);
                    Woken::Ask
                }
            }
        })))
    }

    async fn release(&self, inner: &Arc<dyn Engine>, stake: &Stake) -> Result<Released> {
        let answer = inner.release(stake).await?;
        for tell in self.waiting.lock().remove(&stake.key).unwrap_or_default() {
            // Who went away hears nothing.
            let _ = tell.send(());
        }
        Ok(answer)
    }
}

/// Two waiters on one channel, and neither looks for whom the message is.
#[derive(Default)]
pub(super) struct CountedTwice(Arc<Shared<Listeners>>);

type Listeners = HashMap<Key, Vec<(Owner, oneshot::Sender<Grant>)>>;

#[async_trait]
impl Flaw for CountedTwice {
    async fn claim(&self, inner: &Arc<dyn Engine>, claim: &Claim) -> Result<Answer> {
        let answer = inner.claim(claim).await?;
        let Answer::Busy(busy) = answer else { return Ok(answer) };
        if busy.ahead.is_none() {
            return Ok(Answer::Busy(busy));
        }
        let (tell, told) = oneshot::channel();
        self.0.lock().entry(claim.key.clone()).or_default().push((claim.owner, tell));
        let (listeners, key, owner) = (self.0.clone(), claim.key.clone(), claim.owner);
        Ok(Answer::Busy(change_wake(busy, |mut wake| async move {
            tokio::select! {
                biased;
                woken = &mut wake => {
                    if let Woken::Granted(grant) = woken {
                        tell_another(&listeners, &key, owner, grant);
                    }
                    woken
                }
                Ok(grant) = told => Woken::Granted(grant),
            }
        })))
    }
}

fn tell_another(listeners: &Shared<Listeners>, key: &Key, owner: Owner, grant: Grant) {
    let mut listeners = listeners.lock();
    let Some(waiting) = listeners.get_mut(key) else { return };
    waiting.retain(|(other, tell)| *other != owner && !tell.is_closed());
    if !waiting.is_empty() {
        let (_, tell) = waiting.remove(0);
        let _ = tell.send(grant);
    }
}
