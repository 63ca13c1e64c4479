//! The judge: was a history sound?
//!
//! A [`History`] says what clients asked, were told and did, with begin and end; an outcome that is
//! unknown stays unknown. Each invariant is a file of its own. The simulator, the suite and torture
//! use this one judge, and so can the author of another engine:
//!
//! - wrap the engine of each client in [`Watched`], which records what client and engine say;
//! - let the tasks record what they were given, wrote and were told, with a [`Recorder`];
//! - [`judge`] the history by what the engine promises.

pub mod exclusion;
pub mod fifo;
pub mod gone_is_gone;
pub mod history;
pub mod leases;
pub mod loss_told;
pub mod no_herd;
pub mod no_stale_write;
pub mod nothing_left;
#[cfg(test)]
mod script;
pub mod served;
pub mod tokens_grow;
mod watched;

use std::fmt;
use std::time::Duration;

pub use self::history::{Attempt, Event, History, LeaseId, Outcome, Recorder, What};
pub use self::watched::Watched;

/// What may be expected of a run.
#[derive(Clone, Debug)]
pub struct Expectations {
    /// Whether waiters are served first come, first served: the engine's promise, unless the run
    /// breaks what it rests on.
    pub fifo: bool,
    /// The longest term that the run uses.
    pub term: Duration,
    /// How often places are refreshed: `H` of that term.
    pub refresh: Duration,
    /// The time limit of one request.
    pub request_limit: Duration,
    /// How long a hand-over may take when nothing is broken, apart from what R7 allows.
    pub slack: Duration,
    /// The longest wait in the calm part of the run.
    pub patience: Duration,
    /// How many waiters a departure may wake in vain: none where the key is handed over.
    pub woken_in_vain: usize,
}

/// What is wrong with a history.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The invariant that does not hold.
    pub invariant: &'static str,
    /// What happened.
    pub what: String,
    /// The index of the event that shows it.
    pub at: usize,
}

impl Violation {
    pub(crate) fn new(at: usize, what: impl Into<String>) -> Violation {
        Violation { invariant: "", what: what.into(), at }
    }
}

/// What the judge says.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// Every invariant holds.
    Sound,
    /// One does not.
    Unsound {
        /// The first violation.
        violation: Violation,
        /// The events around it that concern the same key.
        around: Vec<Event>,
    },
}

impl Verdict {
    /// Whether every invariant holds.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        matches!(self, Verdict::Sound)
    }

    /// The invariant that does not hold.
    #[must_use]
    pub fn violated(&self) -> Option<&'static str> {
        match self {
            Verdict::Sound => None,
            Verdict::Unsound { violation, .. } => Some(violation.invariant),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Verdict::Unsound { violation, around } = self else { return f.write_str("sound") };
        writeln!(f, "{} does not hold: {}", violation.invariant, violation.what)?;
        for event in around {
            writeln!(f, "  {event}")?;
        }
        Ok(())
    }
}

/// One invariant: a name, and the function that looks for a violation.
pub type Invariant = (&'static str, fn(&History, &Expectations) -> Result<(), Violation>);

/// All invariants.
pub const INVARIANTS: &[Invariant] = &[
    ("tokens_grow", tokens_grow::check),
    ("exclusion", exclusion::check),
    ("no_stale_write", no_stale_write::check),
    ("loss_told", loss_told::check),
    ("fifo", fifo::check),
    ("served", served::check),
    ("gone_is_gone", gone_is_gone::check),
    ("nothing_left", nothing_left::check),
    ("no_herd", no_herd::check),
];

/// How many events before and after a violation are shown.
const AROUND: usize = 24;

/// Judges a history by all invariants; of several violations it names the first in time.
#[must_use]
pub fn judge(history: &History, expectations: &Expectations) -> Verdict {
    let found = INVARIANTS.iter().filter_map(|(invariant, check)| {
        check(history, expectations).err().map(|violation| Violation { invariant, ..violation })
    });
    let Some(violation) = found.min_by_key(|violation| violation.at) else { return Verdict::Sound };
    let around = around(history, violation.at);
    Verdict::Unsound { violation, around }
}

fn around(history: &History, at: usize) -> Vec<Event> {
    let events = history.events();
    let Some(center) = events.get(at) else { return Vec::new() };
    let concerns = |event: &&Event| event.key.is_none() || center.key.is_none() || event.key == center.key;
    let mut before: Vec<Event> = events[..at].iter().rev().filter(concerns).take(AROUND).cloned().collect();
    before.reverse();
    before.push(center.clone());
    before.extend(events[at + 1..].iter().filter(concerns).take(AROUND / 4).cloned());
    before
}
