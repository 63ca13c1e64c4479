//! Everyone is served or told, and in the calm part of a run within a stated time (R7, R13).
//!
//! - Every attempt ends, except those of clients that died.
//! - An attempt that begins when nothing is broken is not told of an error, and ends within the
//!   run's patience.
//! - When a key is given back and somebody waits who is alive, the next grant is known within `H`
//!   and some slack, plus `3 H` for each dead waiter of the key.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tenure::{Key, Moment, Owner};

use super::{Attempt, Event, Expectations, History, Outcome, Violation, What};

/// Looks for somebody who was forgotten.
///
/// # Errors
/// The first violation.
pub fn check(history: &History, expectations: &Expectations) -> Result<(), Violation> {
    every_attempt_ends(history, expectations)?;
    every_key_goes_on(history, expectations)
}

fn every_attempt_ends(history: &History, expectations: &Expectations) -> Result<(), Violation> {
    let mut open: HashMap<Attempt, (usize, u32, bool)> = HashMap::new();
    let mut dead: HashSet<u32> = HashSet::new();
    let mut calm = false;
    for (at, event) in history.events().iter().enumerate() {
        match &event.what {
            What::Calm => calm = true,
            What::Died => {
                dead.insert(event.client);
            }
            What::AcquireBegins { attempt, .. } => {
                open.insert(*attempt, (at, event.client, calm));
            }
            What::Acquired { attempt, .. } => {
                in_time(history, at, open.remove(attempt), expectations)?;
            }
            What::AcquireEnds { attempt, outcome } => {
                let attempt = open.remove(attempt);
                let alive = !dead.contains(&event.client);
                if let (Outcome::Failed(error) | Outcome::Unknown(error), Some((_, _, true)), true) =
                    (outcome, attempt, alive)
                {
                    let what = format!("nothing is broken, and an attempt failed: {error}");
                    return Err(Violation::new(at, what));
                }
                if alive {
                    in_time(history, at, attempt, expectations)?;
                }
            }
            _ => {}
        }
    }
    let forgotten = open.values().filter(|(_, client, _)| !dead.contains(client)).min();
    match forgotten {
        None => Ok(()),
        Some((at, client, _)) => {
            Err(Violation::new(*at, format!("an attempt of client {client} was neither served nor told")))
        }
    }
}

fn in_time(
    history: &History,
    at: usize,
    attempt: Option<(usize, u32, bool)>,
    expectations: &Expectations,
) -> Result<(), Violation> {
    let Some((begun, _, true)) = attempt else { return Ok(()) };
    let events = history.events();
    let waited = events[at].at.since(events[begun].at);
    if waited <= expectations.patience {
        return Ok(());
    }
    let what =
        format!("nothing is broken, and an attempt took {waited:?}; patience is {:?}", expectations.patience);
    Err(Violation::new(at, what))
}

/// What is known of one key's line.
#[derive(Default)]
struct KeyState {
    /// Who waits, and whose client that is.
    waiting: HashMap<Owner, u32>,
    holding: HashSet<Owner>,
    /// Whose waiting is over: an answer that comes late does not make them wait again.
    over: HashSet<Owner>,
    /// Since when it is free although somebody waits, and the event that says so.
    free: Option<(Moment, usize)>,
}

impl KeyState {
    fn take_in(&mut self, event: &Event, at: usize, calm: bool) {
        match &event.what {
            What::Queued { owner, .. } if !self.over.contains(owner) => {
                self.waiting.insert(*owner, event.client);
            }
            What::Granted { owner } => {
                self.stops_waiting(*owner);
                self.holding.insert(*owner);
                self.free = None;
            }
            What::Gone { owner } => {
                self.stops_waiting(*owner);
                self.holding.remove(owner);
            }
            What::GiveBegins { owner } => self.stops_waiting(*owner),
            What::Given { owner, .. } if self.holding.remove(owner) && calm => {
                self.free.get_or_insert((event.at, at));
            }
            _ => {}
        }
    }

    fn stops_waiting(&mut self, owner: Owner) {
        self.waiting.remove(&owner);
        self.over.insert(owner);
    }
}

fn every_key_goes_on(history: &History, expectations: &Expectations) -> Result<(), Violation> {
    let mut keys: HashMap<&Key, KeyState> = HashMap::new();
    let mut dead: HashSet<u32> = HashSet::new();
    let mut calm = false;
    for (at, event) in history.events().iter().enumerate() {
        if calm {
            overdue(&keys, &dead, event.at, expectations)?;
        }
        calm |= event.what == What::Calm;
        if event.what == What::Died {
            dead.insert(event.client);
        }
        let Some(key) = &event.key else { continue };
        let state = keys.entry(key).or_default();
        state.take_in(event, at, calm);
        if state.waiting.values().all(|client| dead.contains(client)) {
            state.free = None;
        }
    }
    Ok(())
}

fn overdue(
    keys: &HashMap<&Key, KeyState>,
    dead: &HashSet<u32>,
    now: Moment,
    expectations: &Expectations,
) -> Result<(), Violation> {
    for (key, state) in keys {
        let Some((since, at)) = state.free else { continue };
        let dead_waiters = state.waiting.values().filter(|client| dead.contains(client)).count();
        let limit = expectations.refresh * (1 + 3 * u32::try_from(dead_waiters).unwrap_or(u32::MAX))
            + expectations.slack;
        let free: Duration = now.since(since);
        if free > limit {
            let what = format!(
                "{key:?} was given back at {since:?}, and nobody of those who wait knows of a grant {free:?} later; \
                 {dead_waiters} dead waiters allow {limit:?}"
            );
            return Err(Violation::new(at, what));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tenure::engine::{Mode, Released};

    use super::super::script::{Script, expectations, ms};
    use super::*;

    fn sound(script: &Script) -> bool {
        check(&script.history(), &expectations()).is_ok()
    }

    #[test]
    fn every_attempt_ends_unless_its_client_died() {
        let mut script = Script::new();
        script.ask(0, 1, Mode::Exclusive, 0);
        assert!(!sound(&script));
        let mut died = script.clone();
        died.event(0, 5, What::Died);
        assert!(sound(&died));
        script.event(0, 9, What::AcquireEnds { attempt: 1, outcome: Outcome::Cancelled });
        assert!(sound(&script));
    }

    #[test]
    fn when_nothing_is_broken_nothing_fails_and_nobody_waits_for_ever() {
        let run = |calm: bool, outcome: Outcome, at: u64| {
            let mut script = Script::new();
            if calm {
                script.event(9, 0, What::Calm);
            }
            script.ask(0, 1, Mode::Exclusive, 1).event(0, at, What::AcquireEnds { attempt: 1, outcome });
            sound(&script)
        };
        let unknown = || Outcome::Unknown("cut".to_owned());
        assert!(run(false, unknown(), 10) && !run(true, unknown(), 10));
        assert!(run(false, Outcome::TimedOut, 20_000) && !run(true, Outcome::TimedOut, 20_000));
    }

    #[test]
    fn a_key_that_is_given_back_goes_on_to_a_living_waiter_and_a_dead_one_costs_3_h() {
        // H is 100 ms here, the slack 50 ms.
        let run = |dead: bool, granted_at: u64| {
            let mut script = Script::new();
            script.event(9, 0, What::Calm);
            script.stay(0, 1, 1, |owner| What::Granted { owner });
            script.stay(1, 2, 2, |owner| What::Queued { owner, sent: ms(1) });
            script.stay(2, 3, 3, |owner| What::Queued { owner, sent: ms(1) });
            if dead {
                script.event(1, 4, What::Died);
            }
            script.stay(0, 1, 10, |owner| What::Given { owner, sent: ms(9), answer: Released::Released });
            script.stay(2, 3, granted_at, |owner| What::Granted { owner });
            sound(&script)
        };
        assert!(run(false, 150) && !run(false, 200));
        assert!(run(true, 450) && !run(true, 500));
    }
}
