//! The simulator: the real core, keeper included, on a paused clock and a seeded broken world.
//!
//! Several clients, each with several tasks, want a few keys of one store in memory, through
//! [`Chaos`](crate::chaos::Chaos). Things go wrong for a while; then they are mended, and everything must go on:
//! safety first, then progress, then nothing may be left. The [judge](crate::judge) reads the history. One seed
//! is one run, event by event.
//!
//! ```no_run
//! use tenure_testkit::sim::Simulation;
//!
//! let report = Simulation::new(42).run();
//! assert!(report.verdict.is_sound(), "{report}");
//! ```
//!
//! # Where chance could come in, and how it was shut out
//!
//! - *Time*: tokio's clock is paused and moves only when every task waits. The clients' clock, the
//!   store's clock and the recorder's are that clock; the store's runs a little fast or slow by the seed.
//! - *Threads*: one, a current-thread runtime of the run's own; a client's two threads are this one.
//! - *Owners and jitter*: from the client's `Background`, which has a seed.
//! - *Faults*: from a generator of each client's `Chaos`; draws are made when a request is sent, and
//!   all of them in any case, so that one fault less does not move the others.
//! - *The workload*: from a generator of each task.
//! - *`select!`*: always `biased`, in the core and here.
//! - *Hash maps*: their order differs from run to run, so nobody iterates over one where it would
//!   show: the store and the keeper's agenda are ordered by key and by time.
//! - *The process id*: in the name of a holder, for people; it is in no event.

mod run;
mod setup;
mod world;

use std::fmt;

pub use self::setup::Setup;
use crate::broken::Broken;
use crate::judge::{History, Verdict, judge};

/// One run, to be made.
#[derive(Clone, Copy, Debug)]
pub struct Simulation {
    seed: u64,
    broken: Option<Broken>,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The mistake that was made on purpose.
    pub broken: Option<Broken>,
    /// What the seed decided.
    pub setup: Setup,
    /// What happened.
    pub history: History,
    /// Whether it was sound.
    pub verdict: Verdict,
}

impl Simulation {
    /// The run of a seed, with the memory engine as it is.
    #[must_use]
    pub fn new(seed: u64) -> Simulation {
        Simulation { seed, broken: None }
    }

    /// The same with a mistake.
    #[must_use]
    pub fn broken(self, broken: Broken) -> Simulation {
        Simulation { broken: Some(broken), ..self }
    }

    /// Runs it, on a runtime of its own in this thread, and judges it.
    ///
    /// # Panics
    /// If the core or the kit panics; the seed is printed then. If called inside another runtime.
    #[must_use]
    pub fn run(self) -> Report {
        let setup = Setup::of(self.seed);
        let _names_the_seed = NamesTheSeed(self);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.unwrap_or_else(|error| panic!("a runtime could not be made: {error}"));
        let history = runtime.block_on(run::run(self.seed, setup.clone(), self.broken));
        let verdict = judge(&history, &setup.expectations(true));
        Report { seed: self.seed, broken: self.broken, setup, history, verdict }
    }

    /// The command that makes this run again.
    #[must_use]
    pub fn replay(&self) -> String {
        let broken = self.broken.map(|broken| format!("TENURE_SIM_BROKEN={} ", broken.name()));
        format!(
            "TENURE_SIM_SEED={} {}cargo test -p tenure-testkit --test it sim::replay -- --nocapture",
            self.seed,
            broken.unwrap_or_default()
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let simulation = Simulation { seed: self.seed, broken: self.broken };
        writeln!(f, "seed {}: {:?}", self.seed, self.setup)?;
        writeln!(f, "{}", self.verdict)?;
        write!(f, "replay: {}", simulation.replay())
    }
}

/// A panic in a run would not say which run it was.
struct NamesTheSeed(Simulation);

impl Drop for NamesTheSeed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("a simulation panicked; replay: {}", self.0.replay());
        }
    }
}
