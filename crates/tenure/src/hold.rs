//! A hold: what the keeper keeps and leases refer to.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use crate::background::Background;
use crate::engine::Stake;
use crate::observe::ClassMeters;
use crate::time::{Moment, drift};

/// Why a lease was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossCause {
    /// The store says that it is not ours: it expired there, or somebody removed it.
    Taken,
    /// It could not be renewed in time, or renewal was off; its validity is about to end.
    Expired,
    /// The client was closed.
    Closed,
}

/// What a user asked of a lock. Turns pass only between equal settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) term: Duration,
    pub(crate) renewal: bool,
    pub(crate) value: Arc<[u8]>,
    pub(crate) meters: Arc<ClassMeters>,
}

impl Settings {
    /// Whether a grant for `granted` can serve these: the same wishes, and after the first turn only
    /// where renewal gives each turn a full term.
    pub(crate) fn fit(&self, granted: &Settings, turns: u64) -> bool {
        let same =
            self.term == granted.term && self.renewal == granted.renewal && self.value == granted.value;
        same && (turns == 0 || self.renewal)
    }
}

/// One granted stay.
#[derive(Debug)]
pub(crate) struct Hold {
    stake: Mutex<Stake>,
    pub(crate) raw: u64,
    pub(crate) settings: Arc<Settings>,
    background: Background,
    valid_until: AtomicU64,
    fate: AtomicU8,
    lost: Notify,
}

const HELD: u8 = 0;

fn fate_of(cause: LossCause) -> u8 {
    match cause {
        LossCause::Taken => 1,
        LossCause::Expired => 2,
        LossCause::Closed => 3,
    }
}

impl Hold {
    /// A hold whose validity counts from `since`, before the request it rests on was sent (R1).
    pub(crate) fn new(
        stake: Stake,
        raw: u64,
        settings: Arc<Settings>,
        background: Background,
        since: Moment,
        granted: Duration,
    ) -> Hold {
        Hold {
            stake: Mutex::new(Stake { raw: Some(raw), ..stake }),
            raw,
            settings,
            background,
            valid_until: AtomicU64::new(validity(since, granted).as_nanos()),
            fate: AtomicU8::new(HELD),
            lost: Notify::new(),
        }
    }

    pub(crate) fn stake(&self) -> Stake {
        self.stake.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_term(&self, term: Duration) {
        self.stake.lock().unwrap_or_else(PoisonError::into_inner).term = term;
    }

    pub(crate) fn valid_until(&self) -> Moment {
        Moment::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    /// A request sent at `sent` was answered: held for `granted` from then on at least. Validity
    /// never shrinks, since no request of ours shortens a term at the store.
    pub(crate) fn prolong(&self, sent: Moment, granted: Duration) {
        self.valid_until.fetch_max(validity(sent, granted).as_nanos(), Ordering::AcqRel);
    }

    /// When the holder is told, if nothing prolongs it before: a little before validity ends.
    pub(crate) fn tell_at(&self) -> Moment {
        self.valid_until() - notice(self.settings.term)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.fate.load(Ordering::Acquire) == HELD && self.background.now() < self.valid_until()
    }

    pub(crate) fn loss(&self) -> Option<LossCause> {
        match self.fate.load(Ordering::Acquire) {
            HELD => None,
            1 => Some(LossCause::Taken),
            2 => Some(LossCause::Expired),
            _ => Some(LossCause::Closed),
        }
    }

    /// Marks the loss and tells everybody who waits for it. True the first time.
    pub(crate) fn lose(&self, cause: LossCause) -> bool {
        let first =
            self.fate.compare_exchange(HELD, fate_of(cause), Ordering::AcqRel, Ordering::Acquire).is_ok();
        if first {
            let meters = &self.settings.meters;
            let counter = match cause {
                LossCause::Taken => &meters.lost_taken,
                LossCause::Expired => &meters.lost_expired,
                LossCause::Closed => &meters.lost_closed,
            };
            counter.increment(1);
            self.lost.notify_waiters();
        }
        first
    }

    /// Resolves when it is lost. Never, if it is given back before.
    ///
    /// The keeper tells in time, unless the process stands still: then whoever asks first may come before
    /// the keeper, and finds out by the clock. What was told stays so: an answer that comes late does not
    /// bring the lease back.
    pub(crate) async fn lost(&self) -> LossCause {
        let told = self.lost.notified();
        tokio::pin!(told);
        // Listen first, then look, so that a loss in between is not missed.
        told.as_mut().enable();
        poll_fn(|cx| {
            let _ = told.as_mut().poll(cx);
            if self.background.now() >= self.valid_until() {
                self.lose(LossCause::Expired);
            }
            self.loss().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}

fn validity(since: Moment, granted: Duration) -> Moment {
    since + granted.saturating_sub(drift(granted))
}

/// How long before the end of its validity a holder is told: 1 % of the term and 5 ms, at most 250 ms.
fn notice(term: Duration) -> Duration {
    (term / 100 + Duration::from_millis(5)).min(Duration::from_millis(250))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Mode;
    use crate::key::{Key, Owner};

    #[tokio::test(start_paused = true)]
    async fn a_late_answer_does_not_bring_back_a_lease_that_was_told_lost() {
        let background = Background::on_this_runtime(1);
        let term = Duration::from_millis(900);
        let stake = Stake {
            key: Key::new("k").unwrap(),
            owner: Owner::from_id(1),
            mode: Mode::Exclusive,
            term,
            raw: None,
        };
        let meters = Arc::new(ClassMeters::new("memory", "default"));
        let settings = Arc::new(Settings { term, renewal: true, value: Arc::default(), meters });
        let hold = Hold::new(stake, 1, settings, background.clone(), background.now(), term);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let sent = background.now();
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert_eq!(hold.lost().await, LossCause::Expired);
        hold.prolong(sent, term);
        assert!(!hold.is_held());
        assert_eq!(hold.loss(), Some(LossCause::Expired));
    }
}
