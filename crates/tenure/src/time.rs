//! Time: moments on a clock that runs on during suspend, and the bounds of a term.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::promises::Promises;

/// The term of a grant unless `.ttl()` or the `ttl` of the URL says otherwise.
pub const DEFAULT_TERM: Duration = Duration::from_secs(30);

/// A point in time on the client's clock: `CLOCK_BOOTTIME`, which runs on while the machine is
/// suspended, so that a lease does not outlive its term because a laptop slept.
///
/// Comparable within one machine only. It is no wall-clock time and says nothing to another host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(u64);

impl Moment {
    /// Now, on the machine's own clock.
    #[must_use]
    pub fn now() -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
        Moment(u64::try_from(nanos).unwrap_or(0))
    }

    /// The moment so many nanoseconds after the clock's beginning. For injected clocks.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Moment {
        Moment(nanos)
    }

    /// Nanoseconds since the clock's beginning.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;

    fn sub(self, span: Duration) -> Moment {
        Moment(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// How far two clocks may drift apart over `term`: 2 % of it and 2 ms.
///
/// Two per cent is the sum of both rates: a store's clock that is 1 % fast and a client's clock that
/// is 1 % slow. One per cent would cover only one of them, and the client would believe too long.
#[must_use]
pub fn drift(term: Duration) -> Duration {
    term / 50 + Duration::from_millis(2)
}

/// How often a queued place is refreshed: a third of the term, at most one second. Called `H`.
#[must_use]
pub fn refresh_interval(term: Duration) -> Duration {
    (term / 3).min(Duration::from_secs(1))
}

/// The term of a grant that was pushed to a waiter: `min(term, 3 H)`. A dead waiter costs no more.
#[must_use]
pub fn pushed_term(term: Duration) -> Duration {
    term.min(refresh_interval(term) * 3)
}

/// Checks a term against what the engine can keep, and rounds it up to whole milliseconds.
pub(crate) fn check_term(term: Duration, promises: &Promises) -> Result<Duration> {
    let (shortest, longest) = (promises.shortest_term, promises.longest_term);
    if term < shortest || term > longest {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!(
                "a term of {term:?} is out of bounds: this engine keeps terms from {shortest:?} to {}",
                in_days(longest)
            ),
        ));
    }
    Ok(round_up_to_millis(term))
}

/// Reads a span as it stands in a URL, as the parameter `name`: `500ms`, `30s`, `5m`, `2h`, `7d`. It is
/// not shown when it is refused: in a URL that is wrong it may be a part of a password.
pub(crate) fn read_span(name: &str, text: &str) -> Result<Duration> {
    let refuse = || {
        Error::new(ErrorKind::Invalid, format!("{name} in the URL is not a duration"))
            .advice("write 500ms, 30s, 5m, 2h or 7d")
    };
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(refuse)?;
    let number: u64 = text[..digits].parse().map_err(|_| refuse())?;
    let unit = match &text[digits..] {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(refuse()),
    };
    number.checked_mul(unit).map(Duration::from_millis).ok_or_else(refuse)
}

/// Reads `max_ttl` of a URL: the longest term, within an engine's own bounds.
#[cfg(any(feature = "redis", feature = "sqlite"))]
pub(crate) fn read_longest_term(text: &str, shortest: Duration, longest: Duration) -> Result<Duration> {
    let span = read_span("max_ttl", text)?;
    if span < shortest {
        let what = format!("a max_ttl of {span:?} is shorter than the shortest term, {shortest:?}");
        return Err(Error::new(ErrorKind::Invalid, what));
    }
    Ok(span.min(longest))
}

/// Whole days as such: nobody reads 2592000s.
fn in_days(span: Duration) -> String {
    const DAY: u64 = 86_400;
    match (span.as_secs() / DAY, span == Duration::from_secs(span.as_secs() / DAY * DAY)) {
        (days @ 2.., true) => format!("{days} days"),
        _ => format!("{span:?}"),
    }
}

fn round_up_to_millis(term: Duration) -> Duration {
    let part = term.subsec_nanos() % 1_000_000;
    if part == 0 { term } else { term + Duration::from_nanos(u64::from(1_000_000 - part)) }
}

/// Whole milliseconds, for the wire. Terms have been rounded and bounded before.
#[must_use]
#[cfg(feature = "redis")]
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_rounded_up_never_down() {
        assert_eq!(round_up_to_millis(Duration::from_micros(1_500_100)), Duration::from_millis(1501));
        assert_eq!(round_up_to_millis(Duration::from_millis(200)), Duration::from_millis(200));
        #[cfg(feature = "redis")]
        assert_eq!(millis(Duration::from_nanos(1)), 1);
    }

    #[test]
    fn spans_are_read() {
        for (text, millis) in [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("0s", 0)]
        {
            assert_eq!(read_span("ttl", text).unwrap(), Duration::from_millis(millis), "{text}");
        }
        for text in
            ["", "5", "s", "-5s", "1.5s", "5 s", "1h30m", "99999999999999999999s", "9999999999999999d"]
        {
            let error = read_span("ttl", text).unwrap_err();
            assert!(
                error.kind() == ErrorKind::Invalid && error.to_string().contains("write 500ms"),
                "{error}"
            );
        }
    }

    #[test]
    fn arithmetic_saturates() {
        let late = Moment::from_nanos(u64::MAX - 5);
        assert_eq!(late + Duration::MAX, Moment::from_nanos(u64::MAX));
        assert_eq!(Moment::from_nanos(5) - Duration::from_secs(1), Moment::from_nanos(0));
        assert_eq!(Moment::from_nanos(5).since(late), Duration::ZERO);
    }

    #[test]
    fn a_pushed_grant_lasts_three_refreshes_at_most() {
        assert_eq!(pushed_term(Duration::from_secs(30)), Duration::from_secs(3));
        assert!(pushed_term(Duration::from_millis(300)) <= Duration::from_millis(300));
    }
}
