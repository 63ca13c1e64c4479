//! What happened: the events of a run, in order, by one clock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenure::engine::{Mode, Released};
use tenure::{Clock, Key, Moment, Owner};

/// Identifies one attempt to acquire.
pub type Attempt = u64;
/// Identifies one lease: one task's turn.
pub type LeaseId = u64;

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct Event {
    /// When, by a clock that all clients of the run share.
    pub at: Moment,
    /// To which client.
    pub client: u32,
    /// Concerning which key.
    pub key: Option<Key>,
    /// What.
    pub what: What,
}

/// How an attempt ended that did not end in a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Somebody else held it, and the attempt did not wait.
    Busy,
    /// Not granted within the wait.
    TimedOut,
    /// The task went away.
    Cancelled,
    /// An error, and it is certain that nothing was done.
    Failed(String),
    /// An error, and it may have been done. It stays unknown: it is never read as *no*.
    Unknown(String),
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A task asks for the key.
    AcquireBegins {
        /// This attempt.
        attempt: Attempt,
        /// How it is to be held.
        mode: Mode,
    },
    /// The attempt ended in a lease.
    Acquired {
        /// The attempt.
        attempt: Attempt,
        /// The lease.
        lease: LeaseId,
        /// The stay it belongs to.
        owner: Owner,
        /// The fencing token.
        token: u64,
        /// Until when it is stated to be valid.
        valid_until: Moment,
    },
    /// The attempt ended in something else.
    AcquireEnds {
        /// The attempt.
        attempt: Attempt,
        /// In what.
        outcome: Outcome,
    },
    /// A lease states its validity, which grows with renewals.
    Stated {
        /// The lease.
        lease: LeaseId,
        /// Until when it is stated to be valid.
        valid_until: Moment,
    },
    /// The holder was told that the lease is lost.
    ToldLost {
        /// The lease.
        lease: LeaseId,
    },
    /// The holder gives the lease back; from here on it counts no more.
    ReleaseBegins {
        /// The lease.
        lease: LeaseId,
    },
    /// The release was answered; `None`: unclear.
    ReleaseEnds {
        /// The lease.
        lease: LeaseId,
        /// With what.
        answer: Option<Released>,
    },
    /// The register that the key protects saw a write.
    Wrote {
        /// By whom.
        lease: LeaseId,
        /// With which token.
        token: u64,
        /// Whether it was accepted.
        accepted: bool,
    },

    /// A client sends a claim to the engine.
    ClaimBegins {
        /// For which stay.
        owner: Owner,
    },
    /// A claim failed and may have taken effect.
    ClaimUnknown {
        /// Of which stay.
        owner: Owner,
        /// When it was sent.
        sent: Moment,
    },
    /// A client learns that a stay holds the key: by an answer, a push or a refresh.
    Granted {
        /// Which stay.
        owner: Owner,
    },
    /// A client learns that a stay has a place in the queue.
    Queued {
        /// Which stay.
        owner: Owner,
        /// When the request was sent that was answered so.
        sent: Moment,
    },
    /// A client learns that a stay has neither hold nor place.
    Gone {
        /// Which stay.
        owner: Owner,
    },
    /// A client does not listen for a stay any more.
    StoppedListening {
        /// Which stay.
        owner: Owner,
    },
    /// A waiter was woken without being given the key.
    Woken {
        /// Which stay.
        owner: Owner,
    },
    /// A client sends a release to the engine.
    GiveBegins {
        /// Of which stay.
        owner: Owner,
    },
    /// The engine answered a release.
    Given {
        /// Of which stay.
        owner: Owner,
        /// When the release was sent.
        sent: Moment,
        /// With what.
        answer: Released,
    },

    /// The store, asked behind the clients' backs, shows who holds the key.
    Seen {
        /// The stays.
        holders: Vec<Owner>,
    },
    /// The client died, or was cut off for good.
    Died,
    /// From here on nothing is broken any more, and what was broken before has had its time.
    Calm,
    /// The run is over, everybody left and every term had its time: what the store still holds.
    End {
        /// Holds.
        holders: usize,
        /// Places in queues.
        waiters: usize,
        /// Wakes that somebody still listens to.
        listeners: usize,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} client {} ", self.at, self.client)?;
        if let Some(key) = &self.key {
            write!(f, "{key:?} ")?;
        }
        write!(f, "{:?}", self.what)
    }
}

/// All events of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    events: Vec<Event>,
}

impl History {
    /// A history made by hand or read from elsewhere. Events are in the order of time.
    #[must_use]
    pub fn new(events: Vec<Event>) -> History {
        History { events }
    }

    /// The events, in order.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }
}

/// Writes a history down while it happens. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recorder(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Arc<dyn Clock>,
    events: Mutex<Vec<Event>>,
    last_id: AtomicU64,
}

impl Recorder {
    /// A recorder that stamps events by a clock that all clients share.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Recorder {
        Recorder(Arc::new(Inner { clock, events: Mutex::default(), last_id: AtomicU64::new(0) }))
    }

    /// Now, by the run's clock.
    #[must_use]
    pub fn now(&self) -> Moment {
        self.0.clock.now()
    }

    /// A new id, for an attempt or a lease.
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.0.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Adds an event that concerns a key.
    pub fn record(&self, client: u32, key: &Key, what: What) {
        self.push(client, Some(key.clone()), what);
    }

    /// Adds an event that concerns no key.
    pub fn record_plain(&self, client: u32, what: What) {
        self.push(client, None, what);
    }

    fn push(&self, client: u32, key: Option<Key>, what: What) {
        let mut events = self.0.events.lock().unwrap_or_else(PoisonError::into_inner);
        // Stamped under the lock, so that the order of events is the order of time.
        let at = self.0.clock.now();
        events.push(Event { at, client, key, what });
    }

    /// What was recorded so far.
    #[must_use]
    pub fn history(&self) -> History {
        History { events: self.0.events.lock().unwrap_or_else(PoisonError::into_inner).clone() }
    }
}
