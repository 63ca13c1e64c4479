//! An engine that writes down what a client and its engine say to each other.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use async_trait::async_trait;
use tenure::engine::{
    Answer, Busy, Claim, Cursor, Engine, Page, Record, Released, Renewed, Stake, View, Wake, Woken,
};
use tenure::{Key, Moment, Owner, Promises, Result};

use super::history::{Recorder, What};

/// Records the requests of one client and their answers, as this client sees them.
///
/// Put it outermost, around everything that delays or breaks requests.
#[derive(Debug)]
pub struct Watched {
    inner: Arc<dyn Engine>,
    recorder: Recorder,
    client: u32,
}

impl Watched {
    /// Watches `inner`, the engine of client number `client`.
    #[must_use]
    pub fn new(inner: Arc<dyn Engine>, recorder: &Recorder, client: u32) -> Watched {
        Watched { inner, recorder: recorder.clone(), client }
    }

    fn record(&self, key: &Key, what: What) {
        self.recorder.record(self.client, key, what);
    }

    fn listen(&self, claim: &Claim, busy: Busy) -> Busy {
        let wake = WatchedWake {
            inner: Some(busy.wake),
            recorder: self.recorder.clone(),
            client: self.client,
            key: claim.key.clone(),
            owner: claim.owner,
        };
        Busy { wake: Wake::new(wake), ..busy }
    }

    fn note_renewal(&self, stake: &Stake, sent: Moment, renewed: &Renewed) {
        let owner = stake.owner;
        match renewed {
            Renewed::Kept(_) => self.record(&stake.key, What::Granted { owner }),
            Renewed::Waiting(_) => self.record(&stake.key, What::Queued { owner, sent }),
            Renewed::Lost => self.record(&stake.key, What::Gone { owner }),
            Renewed::Unknown(_) => {}
        }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Engine for Watched {
    fn promises(&self) -> Promises {
        self.inner.promises()
    }

    async fn claim(&self, claim: &Claim) -> Result<Answer> {
        let owner = claim.owner;
        let sent = self.recorder.now();
        self.record(&claim.key, What::ClaimBegins { owner });
        match self.inner.claim(claim).await {
            Ok(Answer::Granted(grant)) => {
                self.record(&claim.key, What::Granted { owner });
                Ok(Answer::Granted(grant))
            }
            Ok(Answer::Busy(busy)) if busy.ahead.is_some() => {
                self.record(&claim.key, What::Queued { owner, sent });
                Ok(Answer::Busy(self.listen(claim, busy)))
            }
            Ok(Answer::Busy(busy)) => {
                self.record(&claim.key, What::Gone { owner });
                Ok(Answer::Busy(busy))
            }
            Err(error) if error.may_have_taken_effect() => {
                self.record(&claim.key, What::ClaimUnknown { owner, sent });
                Err(error)
            }
            Err(error) => {
                self.record(&claim.key, What::Gone { owner });
                Err(error)
            }
        }
    }

    async fn renew(&self, stakes: &[Stake]) -> Vec<Renewed> {
        let sent = self.recorder.now();
        let answers = self.inner.renew(stakes).await;
        for (stake, answer) in stakes.iter().zip(&answers) {
            self.note_renewal(stake, sent, answer);
        }
        answers
    }

    async fn release(&self, stake: &Stake) -> Result<Released> {
        let owner = stake.owner;
        let sent = self.recorder.now();
        self.record(&stake.key, What::GiveBegins { owner });
        let answer = self.inner.release(stake).await?;
        self.record(&stake.key, What::Given { owner, sent, answer });
        Ok(answer)
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

/// Notes what a wake said, and when nobody listens to it any more.
struct WatchedWake {
    inner: Option<Wake>,
    recorder: Recorder,
    client: u32,
    key: Key,
    owner: Owner,
}

impl Future for WatchedWake {
    type Output = Woken;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Woken> {
        let Some(wake) = self.inner.as_mut() else { return Poll::Pending };
        let Poll::Ready(woken) = Pin::new(wake).poll(cx) else { return Poll::Pending };
        self.inner = None;
        let owner = self.owner;
        let what = match woken {
            Woken::Granted(_) => What::Granted { owner },
            Woken::Ask => What::Woken { owner },
        };
        self.recorder.record(self.client, &self.key, what);
        Poll::Ready(woken)
    }
}

impl Drop for WatchedWake {
    fn drop(&mut self) {
        if self.inner.take().is_some() {
            self.recorder.record(self.client, &self.key, What::StoppedListening { owner: self.owner });
        }
    }
}
