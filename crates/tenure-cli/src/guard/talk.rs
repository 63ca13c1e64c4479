//! What `tenure` and its guard tell each other: a line of text each, over a pair of sockets.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rustix::process::Signal;
use tenure::Moment;

/// What the guard must know before it may start the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terms {
    /// Until when the lock is proved to be ours.
    pub(crate) valid_until: Moment,
    /// The term of the lock.
    pub(crate) term: Duration,
    /// How long the group may take to end after it was asked to.
    pub(crate) grace: Duration,
    /// What happens when validity ends, whatever `tenure` says or does not say.
    pub(crate) on_lost: OnLost,
}

/// What becomes of the command when the lock is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnLost {
    /// It is asked to end (TERM), and killed when the grace is over.
    Terminate,
    /// It is killed at once.
    Kill,
    /// It runs on, without the lock.
    Ignore,
}

/// What `tenure` tells the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The lock is ours until then.
    Valid(Moment),
    /// Send it to the group.
    Signal(Signal),
    /// End everything: TERM now, KILL after the grace.
    End,
    /// End everything at once.
    Kill,
}

/// What the guard tells `tenure`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The command runs, as the leader of this group.
    Started(i32),
    /// It could not be started, for this reason (`errno`).
    Failed(i32),
    /// The command was stopped by this signal.
    Stopped(i32),
    /// The validity that the guard knows of is about to end: the group is being ended.
    Late,
    /// The command has ended, with this status as `wait` tells it. Others of its group may be left.
    Ended(i32),
    /// Nothing is left that the guard had to see to. Its last words.
    Gone,
}

impl fmt::Display for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [term, grace] = [self.term, self.grace].map(nanos);
        let on_lost = match self.on_lost {
            OnLost::Terminate => 0,
            OnLost::Kill => 1,
            OnLost::Ignore => 2,
        };
        write!(f, "terms {} {term} {grace} {on_lost}", self.valid_until.as_nanos())
    }
}

impl FromStr for Terms {
    type Err = ();

    fn from_str(line: &str) -> Result<Terms, ()> {
        let numbers = numbers(line.strip_prefix("terms ").ok_or(())?)?;
        let [valid_until, term, grace, on_lost] = numbers[..] else { return Err(()) };
        Ok(Terms {
            valid_until: Moment::from_nanos(valid_until),
            term: Duration::from_nanos(term),
            grace: Duration::from_nanos(grace),
            on_lost: match on_lost {
                0 => OnLost::Terminate,
                1 => OnLost::Kill,
                2 => OnLost::Ignore,
                _ => return Err(()),
            },
        })
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Valid(until) => write!(f, "valid {}", until.as_nanos()),
            Order::Signal(signal) => write!(f, "signal {}", signal.as_raw()),
            Order::End => f.write_str("end"),
            Order::Kill => f.write_str("kill"),
        }
    }
}

impl FromStr for Order {
    type Err = ();

    fn from_str(line: &str) -> Result<Order, ()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "valid" => rest.parse().map(|nanos| Order::Valid(Moment::from_nanos(nanos))).map_err(|_| ()),
            "signal" => rest.parse().ok().and_then(Signal::from_named_raw).map(Order::Signal).ok_or(()),
            "end" => Ok(Order::End),
            "kill" => Ok(Order::Kill),
            _ => Err(()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Report::Started(group) => write!(f, "started {group}"),
            Report::Failed(errno) => write!(f, "failed {errno}"),
            Report::Stopped(signal) => write!(f, "stopped {signal}"),
            Report::Late => f.write_str("late"),
            Report::Ended(status) => write!(f, "ended {status}"),
            Report::Gone => f.write_str("gone"),
        }
    }
}

impl FromStr for Report {
    type Err = ();

    fn from_str(line: &str) -> Result<Report, ()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let number = rest.parse().map_err(|_| ());
        match word {
            "started" => number.map(Report::Started),
            "failed" => number.map(Report::Failed),
            "stopped" => number.map(Report::Stopped),
            "late" => Ok(Report::Late),
            "ended" => number.map(Report::Ended),
            "gone" => Ok(Report::Gone),
            _ => Err(()),
        }
    }
}

fn numbers(text: &str) -> Result<Vec<u64>, ()> {
    text.split(' ').map(|word| word.parse().map_err(|_| ())).collect()
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let terms = Terms {
            valid_until: Moment::from_nanos(u64::MAX),
            term: Duration::from_secs(30),
            grace: Duration::from_millis(1),
            on_lost: OnLost::Kill,
        };
        assert_eq!(terms.to_string().parse(), Ok(terms));
        for order in
            [Order::Valid(Moment::from_nanos(7)), Order::Signal(Signal::USR1), Order::End, Order::Kill]
        {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for report in [
            Report::Started(1),
            Report::Failed(2),
            Report::Stopped(20),
            Report::Late,
            Report::Ended(256),
            Report::Gone,
        ] {
            assert_eq!(report.to_string().parse(), Ok(report));
        }
        assert_eq!("terms 1 2".parse::<Terms>(), Err(()));
        assert_eq!("signal 0".parse::<Order>(), Err(()));
        assert_eq!("".parse::<Report>(), Err(()));
    }
}
