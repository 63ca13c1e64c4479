//! Rows as a table for people.

use std::time::Duration;

use super::row::{Hold, Row};
use crate::columns;
use crate::session::shown;

const HEADINGS: [&str; 8] = ["KEY", "HOST", "PID", "SINCE", "LEFT", "TOKEN", "MODE", "WAITING"];

/// Nothing is known, or nothing is there.
const NONE: &str = "-";

pub(super) fn of(rows: &[&Row]) -> String {
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    // The lines below a line: the names in the store.
    let mut below = vec![String::new()];
    for row in rows {
        if row.holders.is_empty() {
            lines.push(cells(row, None));
            below.push(String::new());
        }
        for hold in &row.holders {
            lines.push(cells(row, Some(hold)));
            below.push(String::new());
        }
        let names = row.physical.iter().flatten().map(|name| format!("\n  kept as {}", shown(name)));
        if let Some(last) = below.last_mut() {
            *last = names.collect();
        }
    }
    let aligned = columns::align(&lines);
    aligned.into_iter().zip(below).map(|(line, names)| line + &names).collect::<Vec<_>>().join("\n")
}

fn cells(row: &Row, hold: Option<&Hold>) -> [String; 8] {
    let none = || NONE.to_owned();
    let Some(hold) = hold else {
        let free = "nobody".to_owned();
        return [shown(&row.key), free, none(), none(), none(), none(), none(), row.waiting.to_string()];
    };
    let host = match (&hold.host, &hold.owner) {
        (Some(host), _) => shown(host),
        (None, Some(_)) => none(),
        (None, None) => "(no client of Tenure's)".to_owned(),
    };
    let mode = match (hold.take, hold.of) {
        (Some(take), Some(of)) => format!("{take} of {of}"),
        _ => hold.mode.to_owned(),
    };
    // To the second: for people.
    let since = hold.since.as_ref().map(|since| format!("{}Z", since.split('.').next().unwrap_or(since)));
    [
        shown(&row.key),
        host,
        hold.pid.map_or_else(none, |pid| pid.to_string()),
        since.unwrap_or_else(none),
        left(Duration::from_millis(hold.remaining_ms)),
        hold.raw_token.clone().unwrap_or_else(none),
        mode,
        row.waiting.to_string(),
    ]
}

/// A time that is left, in one or two units.
fn left(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0..10 => format!("{}.{}s", seconds, span.subsec_millis() / 100),
        10..120 => format!("{seconds}s"),
        120..7200 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        7200..172_800 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::who::row::tests::view;
    use tenure::Key;

    #[test]
    fn golden_table() {
        let held = Row::of(&Key::new("jobs/1").unwrap(), "redis", &view(), true);
        let free = Row::of(&Key::new("a\u{202e}b").unwrap(), "redis", &view(), false).free();
        let wanted = "\
KEY         HOST                     PID  SINCE                 LEFT  TOKEN             MODE       WAITING
jobs/1      db-1                     42   2025-12-01T02:30:05Z  27s   1764500000000000  1 of 3     1
jobs/1      (no client of Tenure's)  -    -                     27s   -                 exclusive  1
  kept as p:jobs/1
a\\u{202e}b  nobody                   -    -                     -     -                 -          0";
        assert_eq!(of(&[&held, &free]), wanted);
    }

    #[test]
    fn what_is_left_is_short() {
        let table = [(940, "0.9s"), (9_999, "9.9s"), (27_500, "27s"), (119_000, "119s"), (125_000, "2m05s")];
        for (millis, short) in table {
            assert_eq!(left(Duration::from_millis(millis)), short);
        }
        assert_eq!(left(Duration::from_secs(7260)), "2h01m");
        assert_eq!(left(Duration::from_secs(30 * 86_400)), "30d00h");
    }
}
