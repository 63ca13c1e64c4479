//! The keeper: renews what is held, refreshes places in queues, and tells of loss in time (R2).
//!
//! It has an agenda, ordered by time. What is due together travels together. A request that is
//! not answered holds up nobody: it runs in a task of its own, and its stake comes up again.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, oneshot};

use crate::background::Background;
use crate::engine::{Engine, Renewed, Stake};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::{Hold, LossCause};
use crate::observe::RenewalMeters;
use crate::place::{News, Place};
use crate::time::{Moment, refresh_interval};

/// The most stakes in one renewal request.
const FLIGHT: usize = 1024;

/// How long a waiter endures that the engine does not answer for its place (R13: fail fast).
pub(crate) const OUTAGE_PATIENCE: Duration = Duration::from_secs(5);

/// Called when a hold is lost, after the hold itself was marked.
type OnLoss = Box<dyn Fn() + Send + Sync>;

/// Identifies what is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(u64);

pub(crate) struct Keeper {
    engine: Arc<dyn Engine>,
    background: Background,
    meters: RenewalMeters,
    agenda: Mutex<Agenda>,
    changed: Notify,
}

#[derive(Default)]
struct Agenda {
    last: u64,
    entries: HashMap<Ticket, Entry>,
    by_time: BTreeSet<(Moment, Ticket)>,
    sleeps_until: Option<Moment>,
    closed: bool,
}

struct Entry {
    duty: Duty,
    /// When it is due in `by_time`.
    due: Moment,
    /// When to ask next; `None`: not any more.
    ask_at: Option<Moment>,
    extension: Option<Extension>,
}

enum Duty {
    Hold { hold: Arc<Hold>, on_loss: OnLoss },
    Place { place: Arc<Place>, answered: Moment },
}

struct Extension {
    term: Duration,
    done: oneshot::Sender<Result<()>>,
}

/// One request of a renewal flight.
struct Errand {
    ticket: Ticket,
    stake: Stake,
    extension: Option<Extension>,
}

impl Keeper {
    pub(crate) fn start(engine: Arc<dyn Engine>, background: &Background) -> Arc<Keeper> {
        let keeper = Arc::new(Keeper {
            meters: RenewalMeters::new(engine.promises().engine),
            engine,
            background: background.clone(),
            agenda: Mutex::default(),
            changed: Notify::new(),
        });
        background.renewals().spawn(keeper.clone().supervise());
        keeper
    }

    /// Runs the loop again should it panic: one lease's trouble must not end the others.
    async fn supervise(self: Arc<Self>) {
        while let Err(error) = self.background.renewals().spawn(self.clone().run()).await {
            if error.is_cancelled() {
                return;
            }
            tracing::error!(%error, "the keeper panicked and goes on; please report this");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a hold. `urgent`: prolong it at once, because its first term is a short one.
    pub(crate) fn keep(&self, hold: Arc<Hold>, urgent: bool, on_loss: OnLoss) -> Ticket {
        let now = self.background.now();
        let term = hold.settings.term;
        let ask_at =
            if urgent { Some(now + breath(term)) } else { hold.settings.renewal.then(|| now + term / 3) };
        self.add(Duty::Hold { hold, on_loss }, ask_at)
    }

    /// Keeps a place in a queue fresh.
    pub(crate) fn refresh(&self, place: Arc<Place>, ask_within: Duration) -> Ticket {
        let now = self.background.now();
        let interval = refresh_interval(place.stake.term);
        self.add(Duty::Place { place, answered: now }, Some(now + ask_within.min(interval)))
    }

    fn add(&self, duty: Duty, ask_at: Option<Moment>) -> Ticket {
        let mut agenda = self.lock();
        agenda.last += 1;
        let ticket = Ticket(agenda.last);
        let entry = Entry { duty, due: Moment::default(), ask_at, extension: None };
        agenda.entries.insert(ticket, entry);
        self.schedule(agenda, ticket);
        ticket
    }

    /// Puts an entry into its place in time, and wakes the loop if it would come too late.
    fn schedule(&self, mut agenda: MutexGuard<'_, Agenda>, ticket: Ticket) {
        let Some(due) = agenda.reschedule(ticket) else { return };
        let too_late = agenda.sleeps_until.is_some_and(|until| due < until);
        drop(agenda);
        if too_late {
            self.changed.notify_one();
        }
    }

    /// Asks for this one now.
    pub(crate) fn poke(&self, ticket: Ticket) {
        let now = self.background.now();
        let mut agenda = self.lock();
        if let Some(entry) = agenda.entries.get_mut(&ticket) {
            entry.ask_at = Some(now);
            self.schedule(agenda, ticket);
        }
    }

    /// A new term now. The one way to change a lease's term, so that one request at a time does.
    pub(crate) async fn extend(&self, ticket: Ticket, term: Duration) -> Result<()> {
        let (done, answer) = oneshot::channel();
        let now = self.background.now();
        {
            let mut agenda = self.lock();
            let Some(entry) = agenda.entries.get_mut(&ticket) else { return Err(lost()) };
            if entry.extension.is_some() {
                return Err(Error::new(ErrorKind::Invalid, "another extension of this lease is under way"));
            }
            entry.extension = Some(Extension { term, done });
            entry.ask_at = Some(now);
            self.schedule(agenda, ticket);
        }
        answer.await.unwrap_or_else(|_| Err(lost()))
    }

    /// Keeps it no longer. Answers that are still under way are ignored.
    pub(crate) fn forget(&self, ticket: Ticket) {
        let mut agenda = self.lock();
        if let Some(entry) = agenda.entries.remove(&ticket) {
            agenda.by_time.remove(&(entry.due, ticket));
        }
    }

    /// Ends the loop.
    pub(crate) fn close(&self) {
        let entries = {
            let mut agenda = self.lock();
            agenda.closed = true;
            agenda.by_time.clear();
            std::mem::take(&mut agenda.entries)
        };
        // They refer to the client, which refers to us: dropped without the lock.
        drop(entries);
        self.changed.notify_one();
    }

    async fn run(self: Arc<Self>) {
        loop {
            let now = self.background.now();
            let due = self.take_due(now);
            for told in due.lost {
                told();
            }
            if !due.errands.is_empty() {
                let keeper = self.clone();
                self.background.renewals().spawn(async move { keeper.fly(due.errands).await });
                // There may be more than one flight's worth.
                continue;
            }
            let Some(next) = self.settle_down() else { return };
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = self.background.sleep_until(next) => {}
            }
        }
    }

    /// When to look again; `None` when closed. From here on whoever adds something earlier wakes us.
    fn settle_down(&self) -> Option<Moment> {
        let mut agenda = self.lock();
        if agenda.closed {
            return None;
        }
        let far = self.background.now() + Duration::from_secs(3600);
        let next = agenda.by_time.first().map_or(far, |(due, _)| *due);
        agenda.sleeps_until = Some(next);
        Some(next)
    }

    fn take_due(&self, now: Moment) -> Due {
        let mut agenda = self.lock();
        agenda.sleeps_until = None;
        let mut due = Due::default();
        while let Some(&(at, ticket)) = agenda.by_time.first() {
            if at > now || due.errands.len() == FLIGHT {
                break;
            }
            agenda.come_due(ticket, now, &mut due);
        }
        due
    }

    /// Sends one flight and takes in its answers.
    async fn fly(self: Arc<Self>, errands: Vec<Errand>) {
        let sent = self.background.now();
        let stakes: Vec<Stake> = errands.iter().map(|errand| errand.stake.clone()).collect();
        let answers = self.engine.renew(&stakes).await;
        debug_assert_eq!(answers.len(), errands.len());
        for (errand, answer) in errands.into_iter().zip(answers) {
            self.take_in(errand, answer, sent);
        }
    }

    fn take_in(&self, mut errand: Errand, answer: Renewed, sent: Moment) {
        match &answer {
            Renewed::Kept(_) | Renewed::Waiting(_) => self.meters.kept.increment(1),
            Renewed::Unknown(_) => self.meters.unknown.increment(1),
            Renewed::Lost => self.meters.lost.increment(1),
        }
        let now = self.background.now();
        let mut agenda = self.lock();
        let Some(entry) = agenda.entries.get_mut(&errand.ticket) else {
            // Given back meanwhile: a renewal does not outlive a release.
            return;
        };
        let mut told = None;
        let mut extended = None;
        match &mut entry.duty {
            Duty::Hold { hold, .. } => {
                let (ask_at, is_lost) = take_in_hold(hold, &errand, &answer, sent, now);
                if entry.extension.is_none() {
                    entry.ask_at = ask_at;
                }
                extended =
                    errand.extension.take().map(|extension| (extension.done, extension_result(answer)));
                if is_lost {
                    told = agenda.lose(errand.ticket, LossCause::Taken);
                }
            }
            Duty::Place { place, answered } => {
                let still = take_in_place(place, answered, answer, sent, now);
                entry.ask_at = still;
                if still.is_none() {
                    agenda.remove(errand.ticket);
                }
            }
        }
        self.schedule(agenda, errand.ticket);
        if let Some(told) = told {
            told();
        }
        if let Some((done, result)) = extended {
            let _ = done.send(result);
        }
    }
}

/// What has come due.
#[derive(Default)]
struct Due {
    errands: Vec<Errand>,
    lost: Vec<OnLoss>,
}

impl Agenda {
    fn reschedule(&mut self, ticket: Ticket) -> Option<Moment> {
        let entry = self.entries.get_mut(&ticket)?;
        self.by_time.remove(&(entry.due, ticket));
        let tell_at = match &entry.duty {
            Duty::Hold { hold, .. } => Some(hold.tell_at()),
            Duty::Place { .. } => None,
        };
        let due = [tell_at, entry.ask_at].into_iter().flatten().min()?;
        entry.due = due;
        self.by_time.insert((due, ticket));
        Some(due)
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Entry> {
        let entry = self.entries.remove(&ticket)?;
        self.by_time.remove(&(entry.due, ticket));
        Some(entry)
    }

    /// Marks a hold as lost and forgets it; the answer is to be called without the lock.
    fn lose(&mut self, ticket: Ticket, cause: LossCause) -> Option<OnLoss> {
        match self.remove(ticket)?.duty {
            Duty::Hold { hold, on_loss } => {
                let stake = hold.stake();
                tracing::warn!(key = %stake.key, owner = %stake.owner, ?cause, "lease lost");
                // Its holder may have found out by the clock before: the line has not, so it is told in any case.
                hold.lose(cause);
                Some(on_loss)
            }
            Duty::Place { .. } => None,
        }
    }

    fn come_due(&mut self, ticket: Ticket, now: Moment, due: &mut Due) {
        let Some(entry) = self.entries.get_mut(&ticket) else { return };
        let (stake, term) = match &entry.duty {
            Duty::Hold { hold, .. } if hold.tell_at() <= now => {
                due.lost.extend(self.lose(ticket, LossCause::Expired));
                return;
            }
            Duty::Hold { hold, .. } => (hold.stake(), hold.stake().term),
            Duty::Place { place, .. } => (place.stake.clone(), refresh_interval(place.stake.term)),
        };
        if entry.ask_at.is_some_and(|at| at <= now) {
            let extension = entry.extension.take();
            let stake = match &extension {
                Some(extension) => Stake { term: extension.term, ..stake },
                None => stake,
            };
            due.errands.push(Errand { ticket, stake, extension });
            // Should this one not be answered, ask again: a lost answer must not cost the lease.
            entry.ask_at = Some(now + retry_interval(term));
        }
        self.reschedule(ticket);
    }
}

fn take_in_hold(
    hold: &Hold,
    errand: &Errand,
    answer: &Renewed,
    sent: Moment,
    now: Moment,
) -> (Option<Moment>, bool) {
    match answer {
        Renewed::Kept(granted) => {
            hold.prolong(sent, *granted);
            if let Some(extension) = &errand.extension {
                hold.set_term(extension.term);
            }
            (hold.settings.renewal.then(|| sent + hold.stake().term / 3), false)
        }
        // A place is no hold.
        Renewed::Lost | Renewed::Waiting(_) => (None, true),
        Renewed::Unknown(error) => {
            let stake = hold.stake();
            tracing::warn!(key = %stake.key, %error, "renewal not answered");
            let again = errand.extension.is_none() || hold.settings.renewal;
            (again.then(|| now + retry_interval(stake.term)), false)
        }
    }
}

/// Takes in the answer about a place; when to ask next, or `None` when the place is over.
fn take_in_place(
    place: &Place,
    answered: &mut Moment,
    answer: Renewed,
    sent: Moment,
    now: Moment,
) -> Option<Moment> {
    let interval = refresh_interval(place.stake.term);
    match answer {
        Renewed::Waiting(busy) => {
            *answered = now;
            let ask_at = now + busy.ask_within.min(interval);
            place.still_waiting(sent, busy);
            Some(ask_at)
        }
        Renewed::Kept(granted) => {
            place.tell(News::Yours { sent, granted });
            None
        }
        Renewed::Lost => {
            place.tell(News::Gone);
            None
        }
        Renewed::Unknown(error) => {
            if now.since(*answered) < OUTAGE_PATIENCE.max(interval * 3) {
                return Some(now + retry_interval(interval));
            }
            place.tell(News::Failed(error));
            None
        }
    }
}

fn extension_result(answer: Renewed) -> Result<()> {
    match answer {
        Renewed::Kept(_) => Ok(()),
        Renewed::Lost | Renewed::Waiting(_) => Err(lost()),
        Renewed::Unknown(error) => Err(error),
    }
}

pub(crate) fn lost() -> Error {
    Error::new(ErrorKind::Lost, "the lease was lost")
        .advice("stop the work; what it protects may be in other hands")
}

/// How long a pushed grant waits to be prolonged: 1 % of the term, at most 5 ms. Its own term is hundreds
/// of times that; a hold that ends before costs no renewal, and the one who was told runs first.
fn breath(term: Duration) -> Duration {
    (term / 100).min(Duration::from_millis(5))
}

/// How soon to ask again when nothing was heard: a tenth of the term, between 20 ms and 1 s.
fn retry_interval(term: Duration) -> Duration {
    (term / 10).clamp(Duration::from_millis(20), Duration::from_secs(1))
}
