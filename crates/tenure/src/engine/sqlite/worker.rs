//! The client's thread at the database. What is ready together is one transaction: a flight (R16).

use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;

use super::clients::Turn;
use super::clock::StoreClock;
use super::database::Database;
use super::failure::{Step, Trouble, explain, is_busy};
use super::flight::{Flight, Me, Swept, To, Told};
use super::queue::{self, Queue, Task};
use super::rows::Rows;
use super::wakes::{Wakes, tell};
use crate::error::{Error, Result};

/// Every so many flights something that ran out is removed.
const SWEEP_EVERY: u64 = 16;

pub(super) struct Worker {
    pub(super) queue: Arc<Queue>,
    pub(super) wakes: Arc<Wakes>,
    pub(super) me: Arc<Me>,
    pub(super) clock: StoreClock,
    pub(super) database: Database,
    pub(super) turnstile: File,
    pub(super) swept: Swept,
    pub(super) flights: u64,
}

impl Worker {
    /// Works until the queue is closed and empty.
    pub(super) fn run(mut self) {
        self.bury_the_dead();
        while self.queue.wait() {
            let flown = std::panic::catch_unwind(AssertUnwindSafe(|| self.fly()));
            if flown.is_err() {
                tracing::error!("a request at the database panicked; please report this");
                self.roll_back();
            }
        }
        self.leave();
    }

    fn roll_back(&self) {
        if !self.database.connection.is_autocommit()
            && let Err(error) = self.database.connection.execute_batch("ROLLBACK")
        {
            tracing::warn!(%error, "a transaction could not be rolled back");
        }
    }

    fn fly(&mut self) {
        let queue = self.queue.clone();
        let turnstile = self.turnstile.try_clone();
        let turn = turnstile.as_ref().ok().map(Turn::wait);
        if let Err(error) = self.reopen_if_replaced() {
            drop(turn);
            return end_all(queue.take(), &error);
        }
        match self.database.connection.execute_batch("BEGIN IMMEDIATE") {
            Ok(()) => {}
            // Who waits has a limit of his own, and comes again.
            Err(error) if is_busy(&error) => return,
            Err(error) => {
                drop(turn);
                let error = explain(error, &self.database.path);
                return end_all(queue.take(), &error);
            }
        }
        // Taken now, so that what came while we waited for the lock travels too.
        let mut tasks = queue.take();
        match self.carry(&mut tasks) {
            Ok(told) => {
                drop(turn);
                tasks.into_iter().for_each(|task| task.end(None));
                self.tell(told);
            }
            Err(error) if tasks.len() <= 1 => {
                drop(turn);
                end_all(tasks, &error);
            }
            Err(error) => {
                tracing::debug!(%error, "a flight failed; its members go alone");
                let results: Vec<_> = tasks.into_iter().map(|task| self.carry_alone(task)).collect();
                drop(turn);
                for (task, result) in results {
                    let failure = result.map(|told| self.tell(told)).err();
                    task.end(failure);
                }
            }
        }
    }

    /// Once each: the flight changed nothing, and may have failed because of one member.
    fn carry_alone(&mut self, task: Box<dyn Task>) -> (Box<dyn Task>, Result<Vec<Told>>) {
        let begun = self.database.connection.execute_batch("BEGIN IMMEDIATE");
        let mut one = vec![task];
        let result = match begun {
            Ok(()) => self.carry(&mut one),
            Err(error) => Err(explain(error, &self.database.path)),
        };
        (one.remove(0), result)
    }

    /// Does the tasks in the transaction that was begun, and commits it, or rolls it back.
    fn carry(&mut self, tasks: &mut [Box<dyn Task>]) -> Result<Vec<Told>> {
        // After the requests were taken: a term must not be counted from before it was asked for.
        let now = self.clock.now();
        self.flights += 1;
        let me = self.me.clone();
        let mut flight = Flight::new(Rows(&self.database.connection), &me, now);
        let mut work = || -> Step<()> {
            for task in &mut *tasks {
                task.run(&mut flight)?;
            }
            if self.flights.is_multiple_of(SWEEP_EVERY) {
                flight.sweep(&mut self.swept)?;
            }
            flight.finish()
        };
        let done = work();
        let (told, buried) = (flight.told, flight.buried);
        let committed = done.and_then(|()| Ok(self.database.connection.execute_batch("COMMIT")?));
        match committed {
            Ok(()) => {
                buried.into_iter().for_each(|client| me.folder.remove(client));
                Ok(told)
            }
            Err(trouble) => {
                self.roll_back();
                Err(match trouble {
                    Trouble::Database(error) => explain(error, &self.database.path),
                    Trouble::Refused(error) => error,
                })
            }
        }
    }

    fn tell(&self, told: Vec<Told>) {
        for Told { to, key, owner, grant } in told {
            match to {
                To::Us => self.wakes.deliver(&key, owner, grant),
                To::Other(pipe) => tell(&pipe, &key, owner, grant),
            }
        }
    }

    /// Goes on with the file that is there now, if the one we had was deleted or replaced: it is the one that
    /// others see. What was held in the old one is lost, and told so at the next renewal.
    fn reopen_if_replaced(&mut self) -> Result<()> {
        if self.database.is_in_place() {
            return Ok(());
        }
        tracing::warn!(file = %self.database.path.display(), "the database was deleted or replaced; what was held in it is lost");
        let path: PathBuf = self.database.path.clone();
        self.database = Database::open(&path, &self.me.boot)?;
        Ok(())
    }

    /// Whoever died and left something, has left. The terms of its holds would say so too, later.
    fn bury_the_dead(&self) {
        for client in self.me.folder.dead() {
            // Closed already: the next client does it.
            let _ = self.queue.ask(false, move |flight| flight.bury_if_dead(client));
        }
    }

    /// Gives up what this client has, unless a copy of its liveness lives on in another process.
    fn leave(&mut self) {
        let id = self.me.id;
        let knows = |database: &Database| Rows(&database.connection).has_client(id).unwrap_or(true);
        if knows(&self.database) {
            let turnstile = self.turnstile.try_clone();
            let _turn = turnstile.as_ref().ok().map(Turn::wait);
            let (_, left) = self.carry_alone(queue::own(move |flight| flight.bury_if_dead(id)));
            match left {
                Ok(told) => self.tell(told),
                Err(error) => {
                    tracing::warn!(%error, "what the client held could not be given back; it ends with its term")
                }
            }
        }
        if !knows(&self.database) {
            self.me.folder.forget(id);
        }
    }
}

fn end_all(tasks: Vec<Box<dyn Task>>, error: &Error) {
    for task in tasks {
        task.end(Some(error.clone()));
    }
}
