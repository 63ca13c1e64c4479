//! The lease: what a task holds.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tracing::Instrument as _;

use crate::client::Tenure;
use crate::engine::Released;
use crate::error::{Error, ErrorKind, Result};
use crate::hold::LossCause;
use crate::keeper;
use crate::key::{Key, Owner, Token};
use crate::line::Turn;
use crate::time::{Moment, check_term};

/// A lock that is held. Renewed by itself (unless that was switched off) until it is released,
/// dropped or lost.
///
/// Dropping it releases it in the background. A lease can be lost at any time: when the store does
/// not answer, when somebody removes the key, when the process stands still for longer than the
/// term. So either work inside [`run`](Lease::run), or watch [`lost`](Lease::lost); and give
/// [`token`](Lease::token) to what the lock protects, because only that can refuse a holder who has
/// not noticed yet.
#[must_use = "dropping a lease releases the lock"]
pub struct Lease {
    // The turn goes first when the lease is dropped: the handle may be the last one, and waits then.
    turn: Option<Turn>,
    tenure: Tenure,
}

impl Lease {
    pub(crate) fn new(tenure: Tenure, turn: Turn) -> Lease {
        turn.hold.settings.meters.holders.increment(1.0);
        Lease { turn: Some(turn), tenure }
    }

    fn turn(&self) -> &Turn {
        // Taken only by `release` and by drop, which consume the lease.
        self.turn.as_ref().unwrap_or_else(|| unreachable!("a lease has a turn until it ends"))
    }

    /// The fencing token: larger than that of every earlier lease of the key.
    #[must_use]
    pub fn token(&self) -> Token {
        self.turn().token
    }

    /// The store's own number of the grant.
    #[must_use]
    pub fn raw_token(&self) -> u64 {
        self.turn().hold.raw
    }

    /// The key.
    #[must_use]
    pub fn key(&self) -> &Key {
        self.turn().key()
    }

    /// The id of the stay this lease belongs to, as the store shows it.
    #[must_use]
    pub fn owner(&self) -> Owner {
        self.turn().hold.stake().owner
    }

    /// Until when nobody else can hold the key, as far as is proved now; renewal moves it on.
    ///
    /// Counted from before the request that was answered was sent, less 2 % of the term and 2 ms (R1 of
    /// `DESIGN.md`).
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.turn().hold.valid_until()
    }

    /// How long it is still valid; zero if it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        match self.turn().hold.loss() {
            Some(_) => Duration::ZERO,
            None => self.valid_until().since(self.tenure.core().background.now()),
        }
    }

    /// Whether it is valid at this moment. It may end right after.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.turn().hold.is_held()
    }

    /// Resolves when the lease can no longer be proved. Where renewals are not answered, that is before its
    /// validity ends: by 1 % of the term and 5 ms, at most 250 ms. Where somebody took the key away, it is
    /// with the next renewal, which finds out.
    ///
    /// # Cancel safety
    /// It only waits; drop and call it as often as you like.
    pub async fn lost(&self) -> LossCause {
        self.turn().hold.lost().await
    }

    /// Runs work, and drops it when the lease is lost.
    ///
    /// # Errors
    /// `Lost` if the lease is lost before the work ends. Work that does not yield cannot be dropped.
    ///
    /// # Cancel safety
    /// Dropping the future drops the work; the lease stays.
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased;
            cause = self.lost() => {
                let what = match cause {
                    LossCause::Taken => "the lease was lost: the store says that it is not ours any more",
                    LossCause::Expired => "the lease was lost: it was not renewed in time",
                    LossCause::Closed => "the lease was lost: the client was closed",
                };
                Err(self.complete("run", Error::new(ErrorKind::Lost, what).advice("the work was stopped")))
            }
            result = work => Ok(result),
        }
    }

    /// A new term from now on, for this lease and its renewals. It never shortens what the store has
    /// granted already.
    ///
    /// # Errors
    /// `Invalid` for a term out of bounds, `Lost`, or `Unavailable` if the store did not answer; then
    /// the lease stays as it was, or has the new term.
    ///
    /// # Cancel safety
    /// The request goes on; its effect, if any, counts.
    pub async fn extend(&self, term: Duration) -> Result<()> {
        let core = self.tenure.core();
        let result = async {
            let term = check_term(term, &core.promises)?;
            let ticket = self.turn().ticket().ok_or_else(keeper::lost)?;
            core.keeper.extend(ticket, term).instrument(self.span("extend", self.key())).await
        };
        result.await.map_err(|error| self.complete("extend", error))
    }

    /// Gives the lock back. `WasLost` if it had been lost before: then the work may have overlapped
    /// with somebody else's.
    ///
    /// If another task of this client waits, its turn begins and nothing is sent.
    ///
    /// # Errors
    /// `Unavailable` if the store did not answer; it goes on trying in the background, and the key is
    /// free after the term at the latest.
    ///
    /// # Cancel safety
    /// The release goes on in the background.
    pub async fn release(mut self) -> Result<Released> {
        let Some(turn) = self.turn.take() else { return Ok(Released::WasLost) };
        let key = turn.key().clone();
        count_end(&self.tenure, &turn);
        let was_lost = turn.hold.loss().is_some();
        let span = self.span("release", &key);
        let answer = turn.end().instrument(span).await;
        let engine = self.tenure.core().promises.engine;
        match answer {
            Ok(_) if was_lost => Ok(Released::WasLost),
            other => other.map_err(|error| error.operation("release").key(&key).engine(engine)),
        }
    }

    fn span(&self, operation: &'static str, key: &Key) -> tracing::Span {
        let engine = self.tenure.core().promises.engine;
        tracing::debug_span!("tenure", operation, key = key.as_str(), engine)
    }

    fn complete(&self, operation: &'static str, error: Error) -> Error {
        error.called(operation).key(self.key()).engine(self.tenure.core().promises.engine)
    }
}

fn count_end(tenure: &Tenure, turn: &Turn) {
    let meters = &turn.hold.settings.meters;
    meters.holders.decrement(1.0);
    meters.hold.record(tenure.core().background.now().since(turn.began).as_secs_f64());
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take() {
            count_end(&self.tenure, &turn);
            drop(turn);
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", self.key())
            .field("token", &self.token())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
