//! The figures a client keeps, through the `metrics` facade. Names are a format: golden-tested.
//!
//! Handles are made once per class, so that nothing is looked up on the way of a request, and
//! nothing is paid when no recorder is installed. Install the recorder before the client connects.

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

/// The class of a lock unless `.class()` names one.
pub(crate) const DEFAULT_CLASS: &str = "default";

/// The figures of one class of locks.
#[derive(Debug)]
pub(crate) struct ClassMeters {
    pub(crate) granted: Counter,
    pub(crate) busy: Counter,
    pub(crate) timed_out: Counter,
    pub(crate) error: Counter,
    pub(crate) wait: Histogram,
    pub(crate) hold: Histogram,
    pub(crate) holders: Gauge,
    pub(crate) waiters: Gauge,
    pub(crate) lost_taken: Counter,
    pub(crate) lost_expired: Counter,
    pub(crate) lost_closed: Counter,
}

impl ClassMeters {
    pub(crate) fn new(engine: &'static str, class: &'static str) -> ClassMeters {
        let acquires = |outcome| counter!("tenure_acquires_total", "engine" => engine, "class" => class, "outcome" => outcome);
        let losses =
            |cause| counter!("tenure_losses_total", "engine" => engine, "class" => class, "cause" => cause);
        ClassMeters {
            granted: acquires("granted"),
            busy: acquires("busy"),
            timed_out: acquires("timed_out"),
            error: acquires("error"),
            wait: histogram!("tenure_acquire_wait_seconds", "engine" => engine, "class" => class),
            hold: histogram!("tenure_hold_seconds", "engine" => engine, "class" => class),
            holders: gauge!("tenure_holders", "engine" => engine, "class" => class),
            waiters: gauge!("tenure_waiters", "engine" => engine, "class" => class),
            lost_taken: losses("taken"),
            lost_expired: losses("expired"),
            lost_closed: losses("closed"),
        }
    }
}

/// The figures of renewal.
#[derive(Debug)]
pub(crate) struct RenewalMeters {
    pub(crate) kept: Counter,
    pub(crate) unknown: Counter,
    pub(crate) lost: Counter,
}

impl RenewalMeters {
    pub(crate) fn new(engine: &'static str) -> RenewalMeters {
        let renewals = |outcome| counter!("tenure_renewals_total", "engine" => engine, "outcome" => outcome);
        RenewalMeters { kept: renewals("kept"), unknown: renewals("unknown"), lost: renewals("lost") }
    }
}
