//! Work that tasks of the user hand to the client's own thread.
//!
//! It is queued as plain values and made into tasks over there: memory that one thread allocates and
//! another frees costs more than all the rest of an uncontended acquire, and so does a wake for each.

use std::sync::{Arc, Mutex, PoisonError};

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

/// Makes tasks of the jobs that arrive, until the client ends.
pub(crate) async fn dispatch(core: Arc<Core>) {
    let mut jobs = Vec::new();
    while core.work.take(&mut jobs) {
        for (owed, job) in jobs.drain(..) {
            let task_core = core.clone();
            match job {
                Job::Serve(line) => core.background.spawn_owed(owed, line::serve(task_core, line)),
                Job::GiveBack { line, held, result } => {
                    core.background.spawn_owed(owed, line::give_back(task_core, line, held, result));
                }
            }
        }
        core.work.arrived.notified().await;
    }
}
