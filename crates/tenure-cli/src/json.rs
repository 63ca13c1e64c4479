//! What `tenure` writes for programs: one object a line, a format that golden tests hold.
//!
//! Every object begins with `"v":1`. Tokens are strings, since a double cannot hold them; times are
//! RFC 3339 in UTC, to the millisecond; durations are whole milliseconds, their names end in `_ms`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use time::OffsetDateTime;

/// The version of the format. Fields may come, none goes or changes within it.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Line<'a, T> {
    v: u32,
    #[serde(flatten)]
    what: &'a T,
}

/// An object as a line, without its end.
pub(crate) fn line<T: Serialize>(what: &T) -> String {
    // Only a map with odd keys could fail; ours are structs.
    serde_json::to_string(&Line { v: VERSION, what }).unwrap_or_default()
}

/// A time in UTC, to the millisecond. `None` where no calendar has it.
pub(crate) fn stamp(unix_ms: u64) -> Option<String> {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(unix_ms) * 1_000_000).ok()?;
    let (date, time) = (time.date(), time.time());
    Some(format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        time.hour(),
        time.minute(),
        time.second(),
        time.millisecond()
    ))
}

/// Now, by the wall clock: for people and logs only.
pub(crate) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    stamp(millis(since)).unwrap_or_default()
}

/// Whole milliseconds.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_stamps() {
        assert_eq!(stamp(1_764_556_205_007).as_deref(), Some("2025-12-01T02:30:05.007Z"));
        assert_eq!(stamp(0).as_deref(), Some("1970-01-01T00:00:00.000Z"));
        assert_eq!(stamp(951_782_399_999).as_deref(), Some("2000-02-28T23:59:59.999Z"));
        assert_eq!(stamp(u64::MAX), None);
        assert!(now().as_str() > "2025");
    }

    #[test]
    fn golden_line() {
        #[derive(Serialize)]
        struct Said {
            key: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            token: Option<u64>,
        }
        assert_eq!(line(&Said { key: "a\n\u{1b}\"", token: None }), r#"{"v":1,"key":"a\n\u001b\""}"#);
    }
}
