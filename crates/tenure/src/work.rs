//! Who carries out the work of a line: the task that wants it, or the client's own thread.
//!
//! As long as one task alone depends on a request, it polls the request itself: then its thread does
//! the work, and nobody has to be woken in between. When it goes away, or others come to depend on
//! the request, or it takes long, the request is passed on to the client's thread; it is never
//! dropped (R3).

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{Notify, oneshot};

use crate::client::Core;
use crate::line::Line;

/// One piece of work: claiming for a line, or giving a hold back.
pub(crate) type Job = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Makes a job. It is owed until it has ended: closing and the last handle wait for it.
pub(crate) fn job(core: &Core, work: impl Future<Output = ()> + Send + 'static) -> Job {
    let owed = core.background.owe();
    Box::pin(async move {
        work.await;
        drop(owed);
    })
}

/// Where a line's job lies while a task of the user carries it out.
#[derive(Default)]
pub(crate) struct Desk(Mutex<Option<Job>>);

impl Desk {
    pub(crate) fn lay(&self, job: Job) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(job);
    }

    /// Passes the job on to the client's thread, if one lies here.
    pub(crate) fn clear(&self, core: &Core) {
        let job = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        job.into_iter().for_each(|job| core.hand_over(job));
    }

    /// The same, unless it is being polled at this moment: then its poller passes it on.
    pub(crate) fn clear_if_left_alone(&self, core: &Core) {
        let job = match self.0.try_lock() {
            Ok(mut desk) => desk.take(),
            Err(TryLockError::Poisoned(broken)) => broken.into_inner().take(),
            Err(TryLockError::WouldBlock) => None,
        };
        job.into_iter().for_each(|job| core.hand_over(job));
    }

    /// Polls the job. Ready when it is not ours any more: it has ended, or was passed on.
    fn poll(&self, core: &Core, line: &Line, waiters: usize, cx: &mut Context<'_>) -> Poll<()> {
        let mut desk = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(job) = desk.as_mut() else { return Poll::Ready(()) };
        // Timers and tasks that it makes belong to the client's runtime, where it may end up.
        let _runtime = core.background.requests().enter();
        if job.as_mut().poll(cx).is_ready() {
            *desk = None;
            return Poll::Ready(());
        }
        if line.is_patient(waiters) {
            desk.take().into_iter().for_each(|job| core.hand_over(job));
            return Poll::Ready(());
        }
        Poll::Pending
    }
}

/// A task that waits for an answer, and carries out the work for it if that is its own.
pub(crate) struct Worker {
    core: Arc<Core>,
    pub(crate) line: Arc<Line>,
    /// Whether the job on the line's desk was laid there by this one.
    own: bool,
    /// How many wait in the line on behalf of this one.
    waiters: usize,
}

impl Worker {
    pub(crate) fn new(core: Arc<Core>, line: Arc<Line>, own: bool, waiters: usize) -> Worker {
        Worker { core, line, own, waiters }
    }

    pub(crate) async fn until<T>(&mut self, answer: &mut oneshot::Receiver<T>) -> Option<T> {
        poll_fn(|cx| {
            if let Poll::Ready(answer) = answer.poll_unpin(cx) {
                return Poll::Ready(answer.ok());
            }
            if !self.own || self.line.desk.poll(&self.core, &self.line, self.waiters, cx).is_pending() {
                return Poll::Pending;
            }
            self.own = false;
            answer.poll_unpin(cx).map(Result::ok)
        })
        .await
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.own {
            self.line.desk.clear(&self.core);
        }
    }
}

/// Jobs for the client's thread.
#[derive(Default)]
pub(crate) struct Work {
    queue: Mutex<Queue>,
    arrived: Notify,
}

#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    closed: bool,
}

impl Work {
    /// Queues a job. If the runtime that worked on them has ended, the keeper's thread takes it: the
    /// keeper at least must learn what is not held any more.
    fn hand_over(&self, core: &Core, job: Job) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.closed {
            drop(queue);
            core.background.renewals().spawn(job);
            return;
        }
        queue.jobs.push(job);
        drop(queue);
        self.arrived.notify_one();
    }

    /// No more jobs are taken in; those that nobody has begun yet.
    pub(crate) fn close(&self) -> Vec<Job> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.closed = true;
        self.arrived.notify_one();
        std::mem::take(&mut queue.jobs)
    }

    /// Takes what has arrived; false when closed.
    fn take(&self, jobs: &mut Vec<Job>) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut queue.jobs, jobs);
        !queue.closed
    }
}

/// Works on all jobs that arrive, side by side, until the client ends.
pub(crate) fn dispatch(core: Arc<Core>) -> impl Future<Output = ()> + Send {
    // From now on, not from the first poll: the runtime may end before that.
    let end = EndOfDispatch(core.clone());
    async move {
        let _end = end;
        let mut jobs = Vec::new();
        let mut running = FuturesUnordered::new();
        while core.work.take(&mut jobs) {
            running.extend(jobs.drain(..).map(|job| AssertUnwindSafe(job).catch_unwind()));
            let arrived = core.work.arrived.notified();
            tokio::select! {
                biased;
                () = finish_all(&mut running), if !running.is_empty() => {}
                () = arrived => {}
            }
        }
        // Nobody is left to wait for it; where the runtime goes on, so does what was begun (R3).
        running.extend(jobs.drain(..).map(|job| AssertUnwindSafe(job).catch_unwind()));
        finish_all(&mut running).await;
    }
}

/// Polls what runs until nothing does. One job's panic does not end the others.
async fn finish_all(running: &mut FuturesUnordered<impl Future<Output = std::thread::Result<()>>>) {
    while let Some(ended) = running.next().await {
        if ended.is_err() {
            tracing::error!("a job of the client panicked; please report this");
        }
    }
}

/// Dropped when the dispatcher ends, also with its runtime.
struct EndOfDispatch(Arc<Core>);

impl Drop for EndOfDispatch {
    fn drop(&mut self) {
        for job in self.0.work.close() {
            self.0.background.renewals().spawn(job);
        }
    }
}

impl Core {
    /// Passes a job on to the client's thread.
    pub(crate) fn hand_over(&self, job: Job) {
        self.work.hand_over(self, job);
    }
}
