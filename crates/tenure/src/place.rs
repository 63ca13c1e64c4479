//! A place in a key's queue, as the keeper refreshes it and a stay waits on it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::{Busy, Stake, Wake};
use crate::error::Error;
use crate::time::Moment;

/// What the keeper has found out about a place.
#[derive(Debug)]
pub(crate) enum News {
    /// It holds the key: the message that told of it was lost.
    Yours { sent: Moment, granted: Duration },
    /// It still waits; here is another wake, which was asked for.
    Waiting(Wake),
    /// It is not in the queue any more.
    Gone,
    /// The engine has not answered for too long.
    Failed(Error),
}

/// Who is in the way, for people.
#[derive(Clone, Debug, Default)]
pub(crate) struct InTheWay {
    pub(crate) holder: Option<String>,
    pub(crate) ahead: Option<usize>,
}

#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) stake: Stake,
    /// When the last request that was answered *not yet* was sent: a grant that is pushed was made
    /// after that, so its validity counts from there (R1).
    not_yet: AtomicU64,
    news: Mutex<Option<News>>,
    told: Notify,
    in_the_way: Mutex<InTheWay>,
    /// Whether the wake that the stay waits on has ended.
    wants_wake: AtomicBool,
}

impl Place {
    /// The place that an answer speaks of, and the wake to wait on.
    pub(crate) fn new(stake: Stake, sent: Moment, busy: Busy) -> (Place, Wake) {
        let place = Place {
            stake,
            not_yet: AtomicU64::new(0),
            news: Mutex::new(None),
            told: Notify::new(),
            in_the_way: Mutex::default(),
            wants_wake: AtomicBool::new(false),
        };
        let wake = place.note(sent, busy);
        (place, wake)
    }

    fn note(&self, sent: Moment, busy: Busy) -> Wake {
        self.not_yet.fetch_max(sent.as_nanos(), Ordering::AcqRel);
        let mut in_the_way = self.in_the_way.lock().unwrap_or_else(PoisonError::into_inner);
        *in_the_way = InTheWay { holder: busy.holder, ahead: busy.ahead };
        busy.wake
    }

    /// The keeper heard that it still waits.
    pub(crate) fn still_waiting(&self, sent: Moment, busy: Busy) {
        let wake = self.note(sent, busy);
        if self.wants_wake.swap(false, Ordering::AcqRel) {
            self.tell(News::Waiting(wake));
        }
    }

    /// The wake has ended: the next answer's wake takes its place.
    pub(crate) fn want_wake(&self) {
        self.wants_wake.store(true, Ordering::Release);
    }

    pub(crate) fn in_the_way(&self) -> InTheWay {
        self.in_the_way.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn not_yet(&self) -> Moment {
        Moment::from_nanos(self.not_yet.load(Ordering::Acquire))
    }

    pub(crate) fn tell(&self, news: News) {
        *self.news.lock().unwrap_or_else(PoisonError::into_inner) = Some(news);
        self.told.notify_one();
    }

    pub(crate) async fn news(&self) -> News {
        loop {
            if let Some(news) = self.news.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return news;
            }
            self.told.notified().await;
        }
    }
}
