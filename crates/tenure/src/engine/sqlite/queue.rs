//! Requests on their way to the database's thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::failure::{Step, Trouble};
use super::flight::Flight;
use crate::error::{Error, ErrorKind, Result};

/// Requests that may wait.
const LONGEST: usize = 65_536;
/// The most requests in one flight, beside renewals, and requests to renew.
const FLIGHT: usize = 512;
const RENEWALS: usize = 4;

/// How far a request is.
#[derive(Debug, Default)]
pub(super) struct Stage(AtomicU8);

const QUEUED: u8 = 0;
const TAKEN: u8 = 1;
const ABANDONED: u8 = 2;

impl Stage {
    fn advance(&self, to: u8) -> bool {
        self.0.compare_exchange(QUEUED, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Gives a request up. True if it was not begun, and now never will be.
    pub(super) fn abandon(&self) -> bool {
        self.advance(ABANDONED)
    }

    pub(super) fn was_begun(&self) -> bool {
        self.0.load(Ordering::Acquire) == TAKEN
    }
}

/// A request of whatever kind.
pub(super) trait Task: Send {
    /// Does it within a transaction, perhaps not for the first time: a flight that failed changed nothing.
    fn run(&mut self, flight: &mut Flight<'_>) -> rusqlite::Result<()>;

    /// Answers, once it is committed or has failed.
    fn end(self: Box<Self>, failure: Option<Error>);
}

struct Job<T, F> {
    work: F,
    answer: Option<Result<T>>,
    to: oneshot::Sender<Result<T>>,
}

impl<T: Send, F: FnMut(&mut Flight<'_>) -> Step<T> + Send> Task for Job<T, F> {
    fn run(&mut self, flight: &mut Flight<'_>) -> rusqlite::Result<()> {
        self.answer = Some(match (self.work)(flight) {
            Ok(answer) => Ok(answer),
            Err(Trouble::Refused(error)) => Err(error),
            Err(Trouble::Database(error)) => return Err(error),
        });
        Ok(())
    }

    fn end(self: Box<Self>, failure: Option<Error>) {
        let answer = match (failure, self.answer) {
            (Some(error), _) => Err(error),
            (None, Some(answer)) => answer,
            (None, None) => Err(Error::new(ErrorKind::Internal, "the request was passed over")),
        };
        // Nobody may wait for it any more.
        let _ = self.to.send(answer);
    }
}

/// Work whose answer nobody waits for.
pub(super) fn own(work: impl FnMut(&mut Flight<'_>) -> Step<()> + Send + 'static) -> Box<dyn Task> {
    let (to, _) = oneshot::channel();
    Box::new(Job { work, answer: None, to })
}

struct Waiting {
    stage: Arc<Stage>,
    task: Box<dyn Task>,
}

/// What waits. Renewals are taken first, however many claims there are.
#[derive(Default)]
pub(super) struct Queue {
    inside: Mutex<Inside>,
    arrived: Condvar,
}

#[derive(Default)]
struct Inside {
    renewals: VecDeque<Waiting>,
    others: VecDeque<Waiting>,
    leaving: bool,
    closed: bool,
}

/// A request that was queued.
pub(super) struct Asked<T> {
    pub(super) stage: Arc<Stage>,
    pub(super) answer: oneshot::Receiver<Result<T>>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a request. `first`: it is a renewal.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        first: bool,
        work: impl FnMut(&mut Flight<'_>) -> Step<T> + Send + 'static,
    ) -> Result<Asked<T>> {
        let (to, answer) = oneshot::channel();
        let stage = Arc::new(Stage::default());
        let task = Box::new(Job { work, answer: None, to });
        let mut inside = self.lock();
        if inside.closed {
            return Err(Error::new(ErrorKind::Closed, "the client was closed"));
        }
        let queue = if first { &mut inside.renewals } else { &mut inside.others };
        if queue.len() >= LONGEST {
            // Those that were given up are taken out only when it is their turn.
            queue.retain(|waiting| waiting.stage.0.load(Ordering::Acquire) == QUEUED);
        }
        if queue.len() >= LONGEST {
            return Err(Error::new(
                ErrorKind::Full,
                format!("{LONGEST} requests wait for the database already"),
            )
            .advice("wait and try again"));
        }
        queue.push_back(Waiting { stage: stage.clone(), task });
        drop(inside);
        self.arrived.notify_one();
        Ok(Asked { stage, answer })
    }

    /// Waits for a request. False at the end: closed, and empty.
    pub(super) fn wait(&self) -> bool {
        let empty = |inside: &mut Inside| inside.renewals.is_empty() && inside.others.is_empty();
        let inside = self.arrived.wait_while(self.lock(), |inside| !inside.closed && empty(inside));
        let mut inside = inside.unwrap_or_else(PoisonError::into_inner);
        !empty(&mut inside)
    }

    /// Takes those that travel together.
    pub(super) fn take(&self) -> Vec<Box<dyn Task>> {
        let mut inside = self.lock();
        let mut taken = Vec::new();
        let Inside { renewals, others, .. } = &mut *inside;
        for (queue, most) in [(renewals, RENEWALS), (others, FLIGHT)] {
            let most = taken.len() + most;
            while taken.len() < most
                && let Some(waiting) = queue.pop_front()
            {
                if waiting.stage.advance(TAKEN) {
                    taken.push(waiting.task);
                }
            }
        }
        taken
    }

    /// From here on nothing new may be made for this client, not even by what is queued already. Said before the
    /// client is dead for others: once they have removed what it had, they look for nothing of it any more.
    pub(super) fn leave(&self) {
        self.lock().leaving = true;
    }

    /// Refuses where the client leaves. Within a transaction: whoever removes what is left comes before or after it.
    pub(super) fn refuse_if_leaving(&self) -> Result<()> {
        match self.lock().leaving {
            true => Err(Error::new(ErrorKind::Closed, "the client was closed")),
            false => Ok(()),
        }
    }

    /// No more is taken in.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_one();
    }
}
