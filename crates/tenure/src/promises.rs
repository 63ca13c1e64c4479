//! What an engine guarantees, as data.

use std::time::Duration;

/// How a waiter of an engine is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wakes {
    /// The releaser hands the key over and tells the waiter.
    Push,
    /// The store tells of a change.
    Watch,
    /// The waiter asks again from time to time.
    Poll,
}

/// What an engine guarantees, whatever happens. Constant for an engine's lifetime.
///
/// The test suite selects its cases by these; a promise that is not made has a case too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promises {
    /// The engine's name: `memory`, `redis`, …
    pub engine: &'static str,
    /// Whether it knows shared (reader) holds. Every engine knows exclusive ones.
    pub shared: bool,
    /// Whether it knows permits.
    pub permits: bool,
    /// Whether Tenure clients that wait are served first come, first served.
    pub fifo: bool,
    /// How waiters are woken.
    pub wakes: Wakes,
    /// Whether a record can be kept beside a key ([`Engine::note`](crate::engine::Engine::note)).
    pub notes: bool,
    /// What it rests on that tokens grow, in words.
    pub token: &'static str,
    /// What can make two holders valid at once, in words; empty if nothing can.
    pub exclusion: &'static str,
    /// The shortest term.
    pub shortest_term: Duration,
    /// The longest term.
    pub longest_term: Duration,
    /// The longest queue of one key, in waiting clients.
    pub longest_queue: usize,
}
