//! A place in a key's queue, as the keeper refreshes it and a stay waits on it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::engine::{Busy, Stake};
use crate::error::Error;
use crate::time::Moment;

/// What the keeper has found out about a place.
#[derive(Debug)]
pub(crate) enum News {
    /// It holds the key: the message that told of it was lost.
    Yours { sent: Moment, granted: Duration },
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
}

impl Place {
    pub(crate) fn new(stake: Stake, sent: Moment, busy: &Busy) -> Place {
        let place = Place {
            stake,
            not_yet: AtomicU64::new(0),
            news: Mutex::new(None),
            told: Notify::new(),
            in_the_way: Mutex::default(),
        };
        place.still_waiting(sent, busy);
        place
    }

    pub(crate) fn still_waiting(&self, sent: Moment, busy: &Busy) {
        self.not_yet.fetch_max(sent.as_nanos(), Ordering::AcqRel);
        let mut in_the_way = self.in_the_way.lock().unwrap_or_else(PoisonError::into_inner);
        *in_the_way = InTheWay { holder: busy.holder.clone(), ahead: busy.ahead };
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
