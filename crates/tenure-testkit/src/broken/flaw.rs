//! What a flaw is: the requests that it carries out wrongly; the others go through.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use tenure::engine::{
    Answer, Busy, Claim, Cursor, Engine, Grant, Page, Record, Released, Renewed, Stake, View, Wake, Woken,
};
use tenure::{Key, Promises, Result};

/// One deliberate mistake. Its state is shared by all clients of a run, as if the store made it.
#[async_trait]
pub(super) trait Flaw: Send + Sync + 'static {
    async fn claim(&self, inner: &Arc<dyn Engine>, claim: &Claim) -> Result<Answer> {
        inner.claim(claim).await
    }

    async fn renew(&self, inner: &Arc<dyn Engine>, stakes: &[Stake]) -> Vec<Renewed> {
        inner.renew(stakes).await
    }

    async fn release(&self, inner: &Arc<dyn Engine>, stake: &Stake) -> Result<Released> {
        inner.release(stake).await
    }
}

/// An engine with a flaw.
pub(super) struct Flawed {
    pub(super) inner: Arc<dyn Engine>,
    pub(super) flaw: Arc<dyn Flaw>,
    pub(super) name: &'static str,
}

impl std::fmt::Debug for Flawed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Broken({}, {:?})", self.name, self.inner)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Engine for Flawed {
    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    async fn claim(&self, claim: &Claim) -> Result<Answer> {
        self.flaw.claim(&self.inner, claim).await
    }

    async fn renew(&self, stakes: &[Stake]) -> Vec<Renewed> {
        self.flaw.renew(&self.inner, stakes).await
    }

    async fn release(&self, stake: &Stake) -> Result<Released> {
        self.flaw.release(&self.inner, stake).await
    }

    async fn note(&self, stake: &Stake, record: &Record) -> Result<()> {
        self.inner.note(stake, record).await
    }

    async fn look(&self, key: &Key) -> Result<View> {
        self.inner.look(key).await
    }

    async fn list(&self, starts_with: &str, after: Option<Cursor>) -> Result<Page> {
        self.inner.list(starts_with, after).await
    }
}

/// Changes every grant of an answer, at once or pushed later.
pub(super) fn change_grants(
    answer: Answer,
    change: impl Fn(Grant) -> Grant + Clone + Send + 'static,
) -> Answer {
    match answer {
        Answer::Granted(grant) => Answer::Granted(change(grant)),
        Answer::Busy(busy) => Answer::Busy(change_wake(busy, |wake| async move {
            match wake.await {
                Woken::Granted(grant) => Woken::Granted(change(grant)),
                Woken::Ask => Woken::Ask,
            }
        })),
    }
}

/// Replaces the wake of a busy answer.
pub(super) fn change_wake<F>(busy: Busy, change: impl FnOnce(Wake) -> F) -> Busy
where
    F: Future<Output = Woken> + Send + 'static,
{
    Busy { wake: Wake::new(change(busy.wake)), ..busy }
}
