//! A line: the tasks of one client that want one key in one mode. They share a stay and take turns.
//!
//! While a line claims or releases, one background task works for it; while it is held, none does.
//! So no request is ever dropped by a caller that goes away, and a held key costs no task.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::client::Core;
use crate::engine::{Mode, Released};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::{Hold, Settings};
use crate::keeper::Ticket;
use crate::key::{Key, Token};
use crate::place::{InTheWay, Place};
use crate::stay::{self, Entered, REQUEST_LIMIT};
use crate::time::Moment;
use crate::work::{Desk, Job, Worker, job};

/// The most turns of one grant, so that other processes come to their turn.
const MAX_TURNS: u64 = 1000;
/// No turn begins later than this after the grant.
const MAX_TURN_TIME: Duration = Duration::from_millis(50);
/// The most tasks of one client that wait for one key in one mode.
pub(crate) const MAX_WAITING: usize = 100_000;

pub(crate) struct Line {
    pub(crate) key: Key,
    pub(crate) mode: Mode,
    core: Weak<Core>,
    pub(crate) desk: Desk,
    state: Mutex<State>,
    left: Notify,
}

struct State {
    phase: Phase,
    waiting: VecDeque<Waiter>,
    last_number: u64,
    in_the_way: InTheWay,
    place: Option<Arc<Place>>,
}

enum Phase {
    /// Nobody wants it.
    Idle,
    /// A task claims or releases.
    Working,
    Held(Held),
}

/// A hold of a line, as the line counts its turns.
struct Held {
    hold: Arc<Hold>,
    ticket: Ticket,
    since: Moment,
    turns: u64,
}

struct Waiter {
    number: u64,
    settings: Arc<Settings>,
    joins: bool,
    reply: oneshot::Sender<Reply>,
}

/// What a waiting task is told.
pub(crate) type Reply = Result<Option<Turn>>;

/// A task's place in a line; leaves it when dropped.
pub(crate) struct Waiting {
    number: u64,
    reply: oneshot::Receiver<Reply>,
    worker: Worker,
}

impl Waiting {
    /// Waits for its turn.
    pub(crate) async fn turn(&mut self) -> Reply {
        self.worker.until(&mut self.reply).await.unwrap_or_else(|| Err(closed()))
    }

    /// Who is in the way, as far as is known.
    pub(crate) fn in_the_way(&self) -> InTheWay {
        self.worker.line.in_the_way()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Before the worker passes its work on: that finds out then that nobody waits.
        self.worker.line.abandon(self.number);
    }
}

impl Line {
    pub(crate) fn new(core: &Arc<Core>, key: Key, mode: Mode) -> Line {
        Line {
            key,
            mode,
            core: Arc::downgrade(core),
            desk: Desk::default(),
            state: Mutex::new(State {
                phase: Phase::Idle,
                waiting: VecDeque::new(),
                last_number: 0,
                in_the_way: InTheWay::default(),
                place: None,
            }),
            left: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gets into the line. `None`: it is not free at once, and the caller does not wait.
    pub(crate) fn join(
        self: &Arc<Self>,
        core: &Arc<Core>,
        settings: &Arc<Settings>,
        joins: bool,
    ) -> Result<Option<Waiting>> {
        let (reply, answer) = oneshot::channel();
        let mut state = self.lock();
        // Looked at under the lock that closing takes: nobody joins behind its back.
        if core.is_closed() {
            return Err(closed());
        }
        let begin = matches!(state.phase, Phase::Idle);
        if !begin && !joins {
            return Ok(None);
        }
        if state.waiting.len() >= MAX_WAITING {
            let what = format!("{MAX_WAITING} tasks of this client wait for this key already");
            return Err(Error::new(ErrorKind::Full, what));
        }
        state.last_number += 1;
        let number = state.last_number;
        state.waiting.push_back(Waiter { number, settings: settings.clone(), joins, reply });
        if begin {
            state.phase = Phase::Working;
        }
        drop(state);
        match begin {
            true => self.desk.lay(job(core, serve(core.clone(), self.clone()))),
            // Now there are two who depend on it.
            false => self.desk.clear_if_left_alone(core),
        }
        let worker = Worker::new(core.clone(), self.clone(), begin, 1);
        Ok(Some(Waiting { number, reply: answer, worker }))
    }

    /// Whether its job is nothing for a task of the user: it waits for others, or others wait for it.
    pub(crate) fn is_patient(&self, waiters: usize) -> bool {
        let state = self.lock();
        state.waiting.len() > waiters || state.place.is_some()
    }

    fn abandon(&self, number: u64) {
        let mut state = self.lock();
        // Numbers grow along the line.
        if let Ok(index) = state.waiting.binary_search_by_key(&number, |waiter| waiter.number) {
            state.waiting.remove(index);
            if state.waiting.is_empty() {
                drop(state);
                self.left.notify_one();
            }
        }
    }

    pub(crate) fn is_deserted(&self) -> bool {
        self.lock().waiting.is_empty()
    }

    /// Resolves when no task waits in this line.
    pub(crate) async fn deserted(&self) {
        while !self.is_deserted() {
            self.left.notified().await;
        }
    }

    pub(crate) fn note_in_the_way(&self, in_the_way: InTheWay) {
        self.lock().in_the_way = in_the_way;
    }

    pub(crate) fn set_place(&self, place: Option<Arc<Place>>) {
        self.lock().place = place;
    }

    pub(crate) fn in_the_way(&self) -> InTheWay {
        let state = self.lock();
        state.place.as_ref().map_or_else(|| state.in_the_way.clone(), |place| place.in_the_way())
    }

    /// The settings to claim with and whether to queue, or `None` if nobody waits any more.
    fn next(&self) -> Option<(Arc<Settings>, bool)> {
        let mut state = self.lock();
        state.waiting.retain(|waiter| !waiter.reply.is_closed());
        let first = state.waiting.front().map(|first| (first.settings.clone(), first.joins));
        if first.is_none() {
            state.phase = Phase::Idle;
        }
        first
    }

    /// Gives a fresh hold to the first task that can use it; if there is none, gives it back.
    fn hand_out(self: &Arc<Self>, core: &Arc<Core>, hold: Arc<Hold>, urgent: bool) -> Option<Arc<Hold>> {
        let ticket = {
            let (line, client, lost) = (self.clone(), core.clone(), hold.clone());
            let on_loss = Box::new(move || line.hold_lost(&client, &lost));
            core.keeper.keep(hold.clone(), urgent, on_loss)
        };
        let mut state = self.lock();
        // Should the keeper have told of a loss already, it found no one here to tell.
        let usable = hold.loss().is_none();
        let since = core.background.now();
        let held = Held { hold: hold.clone(), ticket, since, turns: 0 };
        if usable && state.give_turn(core, self, &held) {
            state.in_the_way = InTheWay::default();
            state.phase = Phase::Held(Held { turns: 1, ..held });
            return None;
        }
        drop(state);
        core.keeper.forget(ticket);
        Some(hold)
    }

    /// The keeper tells that a hold is lost: whoever waits here claims anew, and need not wait until
    /// the one who lost it notices.
    pub(crate) fn hold_lost(self: &Arc<Self>, core: &Arc<Core>, hold: &Arc<Hold>) {
        let mut state = self.lock();
        if !matches!(&state.phase, Phase::Held(held) if Arc::ptr_eq(&held.hold, hold)) {
            return;
        }
        let Phase::Held(held) = std::mem::replace(&mut state.phase, Phase::Working) else { return };
        drop(state);
        core.keeper.forget(held.ticket);
        // Something of it may still be there at the store.
        stay::undo(core, hold.stake(), core.background.now());
        core.hand_over(job(core, serve(core.clone(), self.clone())));
    }

    /// A turn ends: the next task's turn begins, or the hold is given back to the store, which is a job
    /// to be carried out. What that came to is sent to `result`.
    fn end_turn(
        self: &Arc<Self>,
        core: &Arc<Core>,
        hold: &Arc<Hold>,
        result: oneshot::Sender<Result<Released>>,
    ) -> Option<Job> {
        let mut state = self.lock();
        let held = match &state.phase {
            Phase::Held(held) if Arc::ptr_eq(&held.hold, hold) => held.clone_parts(),
            // Lost, and told so; the line went on without it.
            _ => {
                let _ = result.send(Ok(Released::WasLost));
                return None;
            }
        };
        if held.may_pass_on(core.background.now()) && state.give_turn(core, self, &held) {
            state.phase = Phase::Held(Held { turns: held.turns + 1, ..held });
            let _ = result.send(Ok(Released::Released));
            return None;
        }
        state.phase = Phase::Working;
        drop(state);
        Some(job(core, give_back(core.clone(), self.clone(), held, result)))
    }

    /// The keeper's ticket of a hold, while it is held.
    pub(crate) fn ticket_of(&self, hold: &Arc<Hold>) -> Option<Ticket> {
        match &self.lock().phase {
            Phase::Held(held) if Arc::ptr_eq(&held.hold, hold) => Some(held.ticket),
            _ => None,
        }
    }

    /// Tells every waiting task the same, and hands over the hold, if there is one.
    pub(crate) fn close(&self, core: &Core) -> Option<Arc<Hold>> {
        let mut state = self.lock();
        let waiting = std::mem::take(&mut state.waiting);
        let held = match &state.phase {
            Phase::Held(held) => Some(held.hold.clone()),
            _ => None,
        };
        drop(state);
        for waiter in waiting {
            let _ = waiter.reply.send(Err(closed()));
        }
        self.left.notify_one();
        // Whoever works on it may not be polled any more.
        self.desk.clear(core);
        held
    }

    fn answer_tries(&self, in_the_way: InTheWay) {
        let mut state = self.lock();
        state.in_the_way = in_the_way;
        let (tries, stay): (VecDeque<_>, VecDeque<_>) =
            state.waiting.drain(..).partition(|waiter| !waiter.joins);
        state.waiting = stay;
        drop(state);
        for waiter in tries {
            let _ = waiter.reply.send(Ok(None));
        }
    }

    fn fail_all(&self, error: &Error) {
        let waiting = std::mem::take(&mut self.lock().waiting);
        for waiter in waiting {
            let _ = waiter.reply.send(Err(error.clone()));
        }
    }
}

impl State {
    /// Gives the next turn of a hold to the first waiting task, if its settings are the hold's.
    fn give_turn(&mut self, core: &Arc<Core>, line: &Arc<Line>, held: &Held) -> bool {
        while let Some(first) = self.waiting.front() {
            let fits = first.settings.fit(&held.hold.settings, held.turns);
            let Some(token) = Token::new(held.hold.raw, held.turns).filter(|_| fits) else { return false };
            let Some(waiter) = self.waiting.pop_front() else { return false };
            let turn = Turn {
                core: core.clone(),
                line: line.clone(),
                hold: held.hold.clone(),
                token,
                began: core.background.now(),
                armed: true,
            };
            match waiter.reply.send(Ok(Some(turn))) {
                Ok(()) => return true,
                // It went away: the turn never began. Disarm it, its end would lock this line again.
                Err(Ok(Some(mut turn))) => turn.armed = false,
                Err(_) => {}
            }
        }
        false
    }
}

impl Held {
    fn clone_parts(&self) -> Held {
        Held { hold: self.hold.clone(), ..*self }
    }

    fn may_pass_on(&self, now: Moment) -> bool {
        let term = self.hold.settings.term;
        self.turns < MAX_TURNS
            && now.since(self.since) < MAX_TURN_TIME
            && self.hold.is_held()
            && self.hold.valid_until().since(now) > term / 3
    }
}

/// Works for a line until it is held or nobody waits: the one task that claims for it.
async fn serve(core: Arc<Core>, line: Arc<Line>) {
    while let Some((settings, join)) = line.next() {
        match stay::enter(&core, &line, &settings, join).await {
            Ok(Entered::Held { hold, urgent }) => match line.hand_out(&core, hold, urgent) {
                None => return,
                Some(unwanted) => {
                    let _ = release(&core, &unwanted).await;
                }
            },
            Ok(Entered::Busy(in_the_way)) => line.answer_tries(in_the_way),
            Ok(Entered::Deserted) => {}
            Err(error) => line.fail_all(&error),
        }
    }
}

/// Releases a hold; asks once more if the answer was lost, and goes on in the background if that is, too.
async fn release(core: &Arc<Core>, hold: &Arc<Hold>) -> Result<Released> {
    let stake = hold.stake();
    let began = core.background.now();
    match core.engine.release(&stake).await {
        // A line that was found cut, not a store that does not answer.
        Err(error)
            if error.kind() == ErrorKind::Unavailable
                && hold.is_held()
                && core.background.now().since(began) < REQUEST_LIMIT / 2 => {}
        Err(error) => {
            stay::undo(core, stake, core.background.now());
            return Err(error);
        }
        done => return done,
    }
    match core.engine.release(&stake).await {
        // Nobody else can have taken it from a valid lease: it was the first try that released it.
        Ok(Released::WasLost) if hold.is_held() => Ok(Released::Released),
        Err(error) => {
            stay::undo(core, stake, core.background.now());
            Err(error)
        }
        done => done,
    }
}

/// Gives a hold back, tells what that came to, and goes on serving the line.
async fn give_back(core: Arc<Core>, line: Arc<Line>, held: Held, result: oneshot::Sender<Result<Released>>) {
    core.keeper.forget(held.ticket);
    let answer = release(&core, &held.hold).await;
    drop(held);
    // Serve first: the one who is told may come back at once, and finds the line idle then.
    let idle = line.next().is_none();
    let _ = result.send(answer);
    if !idle {
        serve(core, line).await;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            core.forget_line(&self.key, self.mode);
        }
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}

/// One task's use of a hold. Ends when dropped.
pub(crate) struct Turn {
    core: Arc<Core>,
    line: Arc<Line>,
    pub(crate) hold: Arc<Hold>,
    pub(crate) token: Token,
    pub(crate) began: Moment,
    armed: bool,
}

impl Turn {
    pub(crate) fn key(&self) -> &Key {
        &self.line.key
    }

    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.line.ticket_of(&self.hold)
    }

    /// Ends the turn, and tells what the store said.
    ///
    /// Dropping the future passes the work on to the client's thread.
    pub(crate) async fn end(mut self) -> Result<Released> {
        self.armed = false;
        let (result, mut answer) = oneshot::channel();
        let job = self.line.end_turn(&self.core, &self.hold, result);
        let own = job.is_some();
        job.into_iter().for_each(|job| self.line.desk.lay(job));
        let mut worker = Worker::new(self.core.clone(), self.line.clone(), own, 0);
        worker.until(&mut answer).await.unwrap_or(Ok(Released::WasLost))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.armed {
            let (result, _) = oneshot::channel();
            let job = self.line.end_turn(&self.core, &self.hold, result);
            job.into_iter().for_each(|job| self.core.hand_over(job));
        }
    }
}
