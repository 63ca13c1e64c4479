//! Trying again, as a value: how often, and with which pauses.

use std::time::Duration;

use crate::background::Background;
use crate::error::{Error, ErrorKind, Result};

/// Bounds (R14): without them a slip of the pen is a loop that never ends, or one without pauses.
const MOST_TRIES: u32 = 100_000;
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
const MOST_FACTOR: u32 = 16;

/// How often something is tried, and how long the pauses between the tries are.
///
/// For [`Mutex::acquire_retrying`](crate::Mutex::acquire_retrying) and
/// [`connect_retrying`](crate::connect_retrying). It is a value: make it once, as a constant too.
///
/// ```
/// use std::time::Duration;
/// use tenure::Retry;
///
/// /// 100 ms, 200 ms, 400 ms, then 500 ms each, and each shortened by up to a half.
/// const POLICY: Retry =
///     Retry::new(20, Duration::from_millis(100)).factor(2).cap(Duration::from_millis(500)).jitter(50);
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tenure::Result<()> {
/// let tenure = tenure::connect_retrying("memory:", &POLICY).await?;
/// let lease = tenure.mutex("orders/42").acquire_retrying(&POLICY).await?;
/// lease.release().await?;
/// # tenure.close().await }
/// ```
///
/// What is out of bounds is refused where the policy is used, before any request: 1 to 100,000 tries, an
/// interval of 1 ms to an hour, a factor of 1 to 16, a cap from the interval to an hour, a jitter of 0 to
/// 100 per cent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Retry {
    tries: u32,
    interval: Duration,
    factor: u32,
    cap: Duration,
    jitter: u32,
}

/// Ten tries: 100 ms after the first, then twice as long each, at most 2 s, each shortened by up to a half.
impl Default for Retry {
    fn default() -> Retry {
        Retry::new(10, Duration::from_millis(100)).factor(2).cap(Duration::from_secs(2)).jitter(50)
    }
}

impl Retry {
    /// No second try.
    pub(crate) const ONCE: Retry = Retry::new(1, SHORTEST_PAUSE);

    /// So many tries in all, with the same pause between each two: from the end of one to the next.
    pub const fn new(tries: u32, interval: Duration) -> Retry {
        Retry { tries, interval, factor: 1, cap: LONGEST_PAUSE, jitter: 0 }
    }

    /// Each pause is so many times the one before; 1 unless said.
    pub const fn factor(mut self, factor: u32) -> Retry {
        self.factor = factor;
        self
    }

    /// No pause is longer; an hour unless said.
    pub const fn cap(mut self, cap: Duration) -> Retry {
        self.cap = cap;
        self
    }

    /// Each pause is shortened at random by up to so many per cent, so that clients that failed together
    /// do not come again together; 0 unless said.
    pub const fn jitter(mut self, per_cent: u32) -> Retry {
        self.jitter = per_cent;
        self
    }

    /// Checks the bounds and begins.
    pub(crate) fn begin(&self) -> Result<Tries> {
        let wrong = if !(1..=MOST_TRIES).contains(&self.tries) {
            format!("{} tries are out of bounds: from 1 to {MOST_TRIES}", self.tries)
        } else if !(SHORTEST_PAUSE..=LONGEST_PAUSE).contains(&self.interval) {
            format!(
                "an interval of {:?} is out of bounds: from {SHORTEST_PAUSE:?} to {LONGEST_PAUSE:?}",
                self.interval
            )
        } else if !(1..=MOST_FACTOR).contains(&self.factor) {
            format!("a factor of {} is out of bounds: from 1 to {MOST_FACTOR}", self.factor)
        } else if !(self.interval..=LONGEST_PAUSE).contains(&self.cap) {
            format!(
                "a cap of {:?} is out of bounds: from the interval, {:?}, to {LONGEST_PAUSE:?}",
                self.cap, self.interval
            )
        } else if self.jitter > 100 {
            format!("a jitter of {} per cent is out of bounds: from 0 to 100", self.jitter)
        } else {
            return Ok(Tries { policy: *self, done: 1, pause: self.interval });
        };
        Err(Error::new(ErrorKind::Invalid, wrong).advice("change the retry policy"))
    }
}

/// A policy at work.
#[derive(Debug)]
pub(crate) struct Tries {
    policy: Retry,
    /// Those that were begun.
    done: u32,
    /// The next pause, before jitter.
    pause: Duration,
}

impl Tries {
    /// Waits for the next try; false if there is none.
    pub(crate) async fn again(&mut self, background: &Background) -> bool {
        if self.done >= self.policy.tries {
            return false;
        }
        self.done += 1;
        let pause = self.pause;
        self.pause = pause.saturating_mul(self.policy.factor).min(self.policy.cap);
        let most_off = pause * self.policy.jitter / 100;
        let off = match most_off.is_zero() {
            true => Duration::ZERO,
            false => background.jitter(Duration::ZERO..most_off),
        };
        background.sleep_until(background.now() + (pause - off)).await;
        true
    }

    /// What the last try met, with how many there were.
    pub(crate) fn in_vain(&self, last: Error) -> Error {
        match self.done {
            1 => last,
            tries => last.prefixed(&format!("{tries} tries failed; the last: ")),
        }
    }
}
