//! What the replies mean.

use std::time::Duration;

use super::refusal::refusal;
use super::value::{decode, describe, is_ours};
use super::wire::Value;
use crate::engine::{Grant, Holder, Mode, Record};
use crate::error::{Error, ErrorKind, Result};
use crate::key::{Owner, Token};
use crate::time::refresh_interval;

/// Time after a remaining term when the key is surely free: the server counts whole milliseconds.
const SURELY_OVER: Duration = Duration::from_millis(2);
/// How often the head looks again after a holder that tells nobody.
pub(super) const FOREIGN_POLL: std::ops::Range<Duration> =
    Duration::from_millis(50)..Duration::from_millis(200);

/// What the first flight of a claim brought.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// It is held, with a number.
    Yes { raw: u64, passed_queue: bool },
    /// Somebody holds it, or something else stands there.
    No,
}

pub(super) fn entered(replies: &[Value]) -> Result<Entered> {
    match replies {
        [Value::Nil, ..] => Ok(Entered::No),
        [Value::Ok, Value::Int(raw), Value::Int(queue)] => {
            // A number below zero is below every floor.
            let raw = u64::try_from(*raw).unwrap_or(0);
            if raw >= Token::RAW_END {
                Err(used_up())
            } else {
                Ok(Entered::Yes { raw, passed_queue: *queue != 0 })
            }
        }
        [Value::Error(text), ..] => Err(refusal(text)),
        // The key was taken, the rest was refused: it must be undone.
        [Value::Ok, Value::Error(text), _] | [Value::Ok, _, Value::Error(text)] => Err(refusal(text).maybe()),
        other => Err(unexpected(other)),
    }
}

/// Somebody is in the way.
#[derive(Debug)]
pub(super) struct InTheWay {
    pub(super) ahead: Option<usize>,
    remaining: Duration,
    ours: bool,
    pub(super) holder: Option<String>,
}

/// What a script about a claim or a renewal said.
#[derive(Debug)]
pub(super) enum Said {
    Granted(Grant),
    Kept(Duration),
    Busy(InTheWay),
    Lost,
}

pub(super) fn said(value: &Value) -> Result<Said> {
    let items = match value {
        Value::List(items) => &items[..],
        Value::Error(text) => return Err(refusal(text)),
        _ => return Err(unexpected(std::slice::from_ref(value))),
    };
    let kind = items.first().and_then(Value::text).unwrap_or_default();
    match (kind, &items[1.min(items.len())..]) {
        (b"g", [raw, term, made]) => {
            let (Some(raw), Some(term)) = (raw.count(), term.count()) else { return Err(unexpected(items)) };
            if raw >= Token::RAW_END {
                return Err(used_up());
            }
            Ok(Said::Granted(Grant { raw, term: Duration::from_millis(term), made: *made == Value::Int(1) }))
        }
        (b"k", [term]) => Ok(Said::Kept(Duration::from_millis(term.count().unwrap_or(0)))),
        (b"b", [ahead, remaining, holder]) => {
            let raw = holder.text();
            Ok(Said::Busy(InTheWay {
                ahead: ahead.count().and_then(|ahead| usize::try_from(ahead).ok()),
                remaining: Duration::from_millis(remaining.count().unwrap_or(0)),
                ours: raw.is_none_or(is_ours),
                holder: raw.and_then(describe),
            }))
        }
        (b"l", []) => Ok(Said::Lost),
        (b"f", []) => Err(Error::new(ErrorKind::Full, "4096 clients wait in the queue of this key already")),
        (b"n", [kind]) => Err(not_a_lock(kind)),
        _ => Err(unexpected(items)),
    }
}

impl InTheWay {
    /// The latest time to ask again. `jitter` is drawn for a holder that tells nobody.
    pub(super) fn ask_within(&self, term: Duration, jitter: impl FnOnce() -> Duration) -> Duration {
        let interval = refresh_interval(term);
        if self.ahead != Some(0) {
            return interval;
        }
        let over = self.remaining + SURELY_OVER;
        if self.ours { over.min(interval) } else { over.min(jitter()).min(interval) }
    }
}

fn used_up() -> Error {
    Error::new(ErrorKind::Internal, "the counter of tokens has reached 2^53")
        .maybe()
        .advice("somebody set it: see R6 in DESIGN.md")
}

fn not_a_lock(kind: &Value) -> Error {
    let kind = kind.text().map(String::from_utf8_lossy).unwrap_or_default();
    Error::new(ErrorKind::NotALock, format!("the key holds a {kind}, which is no lock; it was left alone"))
        .advice("choose another key, or set a prefix")
}

pub(super) fn unexpected(replies: &[Value]) -> Error {
    // Replies may hold others' values: only their shape is told.
    let shape: Vec<&str> = replies
        .iter()
        .map(|reply| match reply {
            Value::Nil => "nil",
            Value::Ok => "OK",
            Value::Int(_) => "number",
            Value::Text(_) => "text",
            Value::List(_) => "list",
            Value::Error(_) => "error",
            Value::Push(_) => "push",
        })
        .collect();
    Error::new(ErrorKind::Internal, format!("the server answered {}", shape.join(", "))).maybe()
}

/// What a look brought: the holder, those who wait, the record and its age.
pub(super) type Seen = (Option<Holder>, Vec<Owner>, Option<(Record, Duration)>);

pub(super) fn seen(value: &Value) -> Result<Seen> {
    let items = match value {
        Value::List(items) => &items[..],
        Value::Error(text) => return Err(refusal(text)),
        _ => return Err(unexpected(std::slice::from_ref(value))),
    };
    match items {
        [_, kind] => Err(not_a_lock(kind)),
        [_, holder, remaining, Value::List(waiters), note, age] => {
            let remaining = Duration::from_millis(remaining.count().unwrap_or(0));
            let waiters =
                waiters.iter().filter_map(|owner| std::str::from_utf8(owner.text()?).ok()?.parse().ok());
            let note = note
                .text()
                .map(|record| (Record(record.to_vec()), Duration::from_millis(age.count().unwrap_or(0))));
            Ok((holder.text().map(|raw| holder_of(raw, remaining)), waiters.collect(), note))
        }
        _ => Err(unexpected(items)),
    }
}

fn holder_of(raw: &[u8], remaining: Duration) -> Holder {
    let said = decode(raw);
    Holder {
        owner: said.as_ref().map(|said| said.owner),
        mode: Mode::Exclusive,
        remaining,
        raw: None,
        host: said.as_ref().and_then(|said| said.host.clone()),
        since_unix_ms: said.as_ref().and_then(|said| said.since_unix_ms),
        value: said.map(|said| said.value).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_taken_whose_number_was_refused_must_be_undone() {
        let refused = Value::Error("OOM command not allowed".into());
        assert!(entered(&[Value::Ok, refused.clone(), Value::Int(0)]).unwrap_err().may_have_taken_effect());
        assert!(
            !entered(&[refused.clone(), refused.clone(), Value::Int(0)]).unwrap_err().may_have_taken_effect()
        );
        assert_eq!(entered(&[Value::Nil, refused, Value::Int(0)]).unwrap(), Entered::No);
    }

    #[test]
    fn only_the_head_asks_early() {
        let term = Duration::from_secs(30);
        let jitter = || Duration::from_millis(70);
        let way = |ahead, remaining, ours| InTheWay {
            ahead,
            remaining: Duration::from_millis(remaining),
            ours,
            holder: None,
        };
        assert_eq!(way(Some(0), 40, true).ask_within(term, jitter), Duration::from_millis(42));
        assert_eq!(way(Some(0), 9000, true).ask_within(term, jitter), Duration::from_secs(1));
        assert_eq!(way(Some(1), 40, true).ask_within(term, jitter), Duration::from_secs(1));
        assert_eq!(way(Some(0), 9000, false).ask_within(term, jitter), Duration::from_millis(70));
        assert_eq!(way(Some(0), 9, false).ask_within(term, jitter), Duration::from_millis(11));
        assert_eq!(way(Some(3), 9000, false).ask_within(term, jitter), Duration::from_secs(1));
    }
}
