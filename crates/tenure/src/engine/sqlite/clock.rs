//! The clocks of the machine that all who use a database share.

use std::sync::Arc;

use crate::background::Background;
use crate::error::{Error, ErrorKind, Result};

/// Which boot of the machine this is: what was written in another one is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Boot(pub(super) Arc<str>);

impl Boot {
    /// The running one.
    pub(super) fn current() -> Result<Boot> {
        match std::fs::read_to_string("/proc/sys/kernel/random/boot_id") {
            Ok(id) => Ok(Boot(id.trim().into())),
            Err(error) => {
                Err(Error::new(ErrorKind::Unsupported, "which boot of the machine this is cannot be read")
                    .advice("mount /proc: without it a hold could not be told from one of an earlier boot")
                    .source_error(error))
            }
        }
    }
}

/// `CLOCK_BOOTTIME` of the machine, which runs on during suspend, in nanoseconds. In a time namespace the
/// clock is set off against the others', so that is taken back.
#[derive(Clone, Debug)]
pub(super) struct StoreClock {
    background: Background,
    offset: i64,
}

impl StoreClock {
    pub(super) fn new(background: &Background) -> StoreClock {
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        StoreClock { background: background.clone(), offset: boottime_offset(&offsets) }
    }

    pub(super) fn now(&self) -> i64 {
        let now = i64::try_from(self.background.now().as_nanos()).unwrap_or(i64::MAX);
        now.saturating_sub(self.offset)
    }
}

fn boottime_offset(offsets: &str) -> i64 {
    let line = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
    let mut numbers =
        line.unwrap_or_default().split_whitespace().map(|word| word.parse::<i64>().unwrap_or(0));
    let (seconds, nanos) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Microseconds since 1970 by the wall clock: below it no number is given, so that numbers grow also where
/// the file was deleted. It decides nothing else.
pub(super) fn wall_micros() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    let micros = i128::from(time.tv_sec) * 1_000_000 + i128::from(time.tv_nsec) / 1_000;
    u64::try_from(micros).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_time_namespace_is_read() {
        assert_eq!(boottime_offset("monotonic           0         0\nboottime            0         0\n"), 0);
        assert_eq!(boottime_offset("monotonic  1 2\nboottime  -5  7\n"), -5_000_000_000 + 7);
        assert_eq!(boottime_offset(""), 0);
    }
}
