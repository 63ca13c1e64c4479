//! A stay: claim, wait for one's turn in the store's queue, and the undoing of what is unclear.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Core;
use crate::engine::{Answer, Busy, Claim, Grant, Renewed, Stake, Wake, Woken};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::{Hold, Settings};
use crate::keeper::Ticket;
use crate::line::Line;
use crate::place::{InTheWay, News, Place};
use crate::time::Moment;

/// The time limit of one request, where an engine is not told another.
pub(crate) const REQUEST_LIMIT: Duration = Duration::from_secs(2);

/// How a try to enter ended.
pub(crate) enum Entered {
    /// Held. `urgent`: by a short term that must be prolonged at once.
    Held { hold: Arc<Hold>, urgent: bool },
    /// Somebody is in the way, and we do not wait.
    Busy(InTheWay),
    /// Nobody here waits for it any more. Nothing was left behind.
    Deserted,
}

/// What one stay came to.
enum Step {
    Done(Entered),
    /// The place was lost, or what happened is unclear and undone: begin anew, as another owner.
    Again,
}

/// Enters, as one owner after another where a place is lost, until it holds or nobody waits.
pub(crate) async fn enter(
    core: &Arc<Core>,
    line: &Line,
    settings: &Arc<Settings>,
    join: bool,
) -> Result<Entered> {
    let mut cut = false;
    let mut pause = Duration::ZERO;
    loop {
        let stay_began = core.background.now();
        match one_stay(core, line, settings, join).await {
            Ok(Step::Done(entered)) => return Ok(entered),
            Ok(Step::Again) if line.is_deserted() => return Ok(Entered::Deserted),
            Ok(Step::Again) => {
                // Places that are lost as soon as they are taken must not become a busy loop.
                let hasty = core.background.now().since(stay_began) < Duration::from_millis(20);
                pause = if hasty {
                    (pause * 2).clamp(Duration::from_millis(1), Duration::from_millis(200))
                } else {
                    Duration::ZERO
                };
                core.background.sleep_until(core.background.now() + pause).await;
            }
            // A connection that was found cut says nothing about the store: ask once more, as another owner.
            Err(error)
                if error.kind() == ErrorKind::Unavailable
                    && !cut
                    && core.background.now().since(stay_began) < REQUEST_LIMIT / 2 =>
            {
                tracing::debug!(key = %line.key, %error, "claim failed, asking once more");
                cut = true;
            }
            Err(error) => return Err(error),
        }
    }
}

async fn one_stay(core: &Arc<Core>, line: &Line, settings: &Arc<Settings>, join: bool) -> Result<Step> {
    let claim = Claim {
        key: line.key.clone(),
        owner: core.background.owner(),
        mode: line.mode,
        term: settings.term,
        value: settings.value.to_vec(),
        join,
    };
    let sent = core.background.now();
    match core.engine.claim(&claim).await {
        Ok(Answer::Granted(grant)) => {
            let hold = hold_of(core, &claim.stake(), settings, &grant, sent);
            match hold.is_held() {
                true => Ok(Step::Done(Entered::Held { hold, urgent: false })),
                false => {
                    undo(core, claim.stake(), sent);
                    Err(too_late())
                }
            }
        }
        Ok(Answer::Busy(busy)) if busy.ahead.is_some() => {
            let ask_within = busy.ask_within;
            let (place, wake) = Place::new(claim.stake(), sent, busy);
            // Boxed, so that the future of a claim that need not wait stays small.
            Box::pin(wait_in_queue(core, line, settings, place, wake, ask_within)).await
        }
        Ok(Answer::Busy(busy)) if join => Box::pin(wait_outside(core, line, busy)).await,
        Ok(Answer::Busy(busy)) => {
            Ok(Step::Done(Entered::Busy(InTheWay { holder: busy.holder, ahead: busy.ahead })))
        }
        Err(error) => {
            if error.may_have_taken_effect() {
                undo(core, claim.stake(), sent);
            }
            Err(error)
        }
    }
}

fn hold_of(core: &Core, stake: &Stake, settings: &Arc<Settings>, grant: &Grant, since: Moment) -> Arc<Hold> {
    let background = core.background.clone();
    Arc::new(Hold::new(stake.clone(), grant.raw, settings.clone(), background, since, grant.term))
}

/// Waits where the engine keeps no queue: until the wake or the recheck, then begins anew.
async fn wait_outside(core: &Arc<Core>, line: &Line, busy: Busy) -> Result<Step> {
    line.note_in_the_way(InTheWay { holder: busy.holder, ahead: None });
    let recheck = core.background.now() + busy.ask_within;
    tokio::select! {
        biased;
        () = line.deserted() => {}
        _ = busy.wake => {}
        () = core.background.sleep_until(recheck) => {}
    }
    Ok(Step::Again)
}

async fn wait_in_queue(
    core: &Arc<Core>,
    line: &Line,
    settings: &Arc<Settings>,
    place: Place,
    mut wake: Wake,
    ask_within: Duration,
) -> Result<Step> {
    let place = Arc::new(place);
    let stake = place.stake.clone();
    line.note_in_the_way(place.in_the_way());
    line.set_place(Some(place.clone()));
    // Forgotten also when this future ends with its runtime: nobody refreshes a place for no one.
    let refreshed = Refreshed { core, ticket: core.keeper.refresh(place.clone(), ask_within) };
    let mut asleep = true;
    let step = loop {
        tokio::select! {
            biased;
            () = line.deserted() => {
                leave(core, stake).await;
                break Ok(Step::Done(Entered::Deserted));
            }
            woken = &mut wake, if asleep => match woken {
                Woken::Granted(grant) => break pushed(core, settings, &place, &grant).await,
                Woken::Ask => {
                    asleep = false;
                    place.want_wake();
                    core.keeper.poke(refreshed.ticket);
                }
            },
            news = place.news() => match news {
                News::Waiting(another) => {
                    wake = another;
                    asleep = true;
                }
                News::Gone => break Ok(Step::Again),
                News::Failed(error) => {
                    undo(core, stake, core.background.now());
                    break Err(error);
                }
                News::Yours { sent, granted } => {
                    break number(core, line, settings, &stake, sent, granted).await;
                }
            },
        }
    };
    drop(refreshed);
    line.set_place(None);
    step
}

/// A place that the keeper refreshes as long as this lives.
struct Refreshed<'a> {
    core: &'a Core,
    ticket: Ticket,
}

impl Drop for Refreshed<'_> {
    fn drop(&mut self) {
        self.core.keeper.forget(self.ticket);
    }
}

/// The key was handed to us. That happened after the last request that was answered *not yet*.
async fn pushed(core: &Arc<Core>, settings: &Arc<Settings>, place: &Place, grant: &Grant) -> Result<Step> {
    let since = place.not_yet();
    let hold = hold_of(core, &place.stake, settings, grant, since);
    if !hold.is_held() {
        // The message took longer than its term, counted from a moment that was before it: ask.
        let sent = core.background.now();
        let answer = core.engine.renew(std::slice::from_ref(&place.stake)).await.pop();
        if let Some(Renewed::Kept(granted)) = answer {
            hold.prolong(sent, granted);
        }
        // This answer may have taken longer than the term, too: a lease is valid when it is handed out.
        if !hold.is_held() {
            undo(core, place.stake.clone(), sent);
            return Ok(Step::Again);
        }
    }
    Ok(Step::Done(Entered::Held { hold, urgent: true }))
}

/// It is ours, but the message with the number was lost: claiming what we hold mints another.
async fn number(
    core: &Arc<Core>,
    line: &Line,
    settings: &Arc<Settings>,
    stake: &Stake,
    held_since: Moment,
    granted: Duration,
) -> Result<Step> {
    let claim = Claim {
        key: line.key.clone(),
        owner: stake.owner,
        mode: stake.mode,
        term: stake.term,
        value: settings.value.to_vec(),
        join: false,
    };
    let sent = core.background.now();
    let answer = core.engine.claim(&claim).await;
    if let Ok(Answer::Granted(grant)) = &answer {
        let (since, term) = if grant.made { (sent, grant.term) } else { (held_since, granted) };
        let hold = hold_of(core, stake, settings, &Grant { term, ..*grant }, since);
        if hold.is_held() {
            return Ok(Step::Done(Entered::Held { hold, urgent: true }));
        }
    }
    undo(core, stake.clone(), sent);
    match answer {
        // The next stay finds out whether the store is there.
        Err(error) if error.kind() != ErrorKind::Unavailable => Err(error),
        _ => Ok(Step::Again),
    }
}

/// Leaves a queue, or gives back what was handed over meanwhile.
async fn leave(core: &Arc<Core>, stake: Stake) {
    if core.engine.release(&stake).await.is_err() {
        undo(core, stake, core.background.now());
    }
}

/// Undoes what may be there, in the background: until the store has answered, or a term is over and
/// the store has let go by itself; and once more after the time limit of the claim, because a claim
/// on another line may have been overtaken (R3).
pub(crate) fn undo(core: &Arc<Core>, stake: Stake, sent: Moment) {
    let engine = core.engine.clone();
    let background = core.background.clone();
    let again = sent + REQUEST_LIMIT * 2;
    let worker = core.clone();
    core.background.spawn(async move {
        let until = background.now() + stake.term;
        let mut pause = Duration::from_millis(20);
        while let Err(error) = engine.release(&stake).await {
            if background.now() >= until {
                tracing::warn!(key = %stake.key, owner = %stake.owner, %error, "could not be undone; it ends with its term");
                return;
            }
            background.sleep_until(background.now() + pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
        // Nobody has to wait for this one.
        let later = background.clone();
        worker.background.requests().spawn(async move {
            later.sleep_until(again).await;
            let _ = engine.release(&stake).await;
        });
    });
}

fn too_late() -> Error {
    Error::new(ErrorKind::Unavailable, "the grant came later than its own term and was given back")
        .advice("use a longer term, or look why the store answers so slowly")
}
