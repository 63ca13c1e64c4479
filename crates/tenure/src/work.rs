//! Work that tasks of the user hand to the client's own thread.
//!
//! It is queued as plain values and begun over there: memory that one thread allocates and another
//! frees costs more than all the rest of an uncontended acquire, and so does a wake for each.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{Notify, oneshot};

use crate::background::Owed;
use crate::client::Core;
use crate::engine::Released;
use crate::error::Result;
use crate::line::{self, Held, Line};

/// One piece of work.
pub(crate) enum Job {
    /// Claim for a line until it is held or nobody waits.
    Serve(Arc<Line>),
    /// Give a hold back, tell what that came to, and go on serving its line.
    GiveBack { line: Arc<Line>, held: Held, result: oneshot::Sender<Result<Released>> },
}

/// The queue. Every job is owed until it has ended.
#[derive(Default)]
pub(crate) struct Work {
    queue: Mutex<Queue>,
    arrived: Notify,
}

#[derive(Default)]
struct Queue {
    jobs: Vec<(Owed, Job)>,
    closed: bool,
}

impl Work {
    pub(crate) fn hand_over(&self, owed: Owed, job: Job) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.jobs.push((owed, job));
        let first = queue.jobs.len() == 1;
        drop(queue);
        if first {
            self.arrived.notify_one();
        }
    }

    pub(crate) fn close(&self) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.arrived.notify_one();
    }

    /// Takes what has arrived; false when closed.
    fn take(&self, jobs: &mut Vec<(Owed, Job)>) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut queue.jobs, jobs);
        !queue.closed
    }
}

/// Works on all jobs that arrive, side by side, until the client ends.
///
/// One task for all of them: a task of the runtime for each would cost more than the job itself.
pub(crate) async fn dispatch(core: Arc<Core>) {
    let mut jobs = Vec::new();
    let mut running = FuturesUnordered::new();
    while core.work.take(&mut jobs) {
        for (owed, job) in jobs.drain(..) {
            running.push(AssertUnwindSafe(carry_out(core.clone(), owed, job)).catch_unwind());
        }
        let arrived = core.work.arrived.notified();
        tokio::select! {
            biased;
            () = finish_all(&mut running), if !running.is_empty() => {}
            () = arrived => {}
        }
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

async fn carry_out(core: Arc<Core>, owed: Owed, job: Job) {
    match job {
        Job::Serve(line) => line::serve(core, line).await,
        Job::GiveBack { line, held, result } => line::give_back(core, line, held, result).await,
    }
    drop(owed);
}
