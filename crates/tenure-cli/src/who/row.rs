//! A key as it is shown: the same for people and for programs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use tenure::Key;
use tenure::engine::{Holder, Mode, View};

use crate::host::{self, Host};
use crate::json;

/// A key with its holders.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) key: String,
    pub(super) engine: &'static str,
    pub(super) holders: Vec<Hold>,
    /// How many wait.
    pub(super) waiting: usize,
    /// Where it is kept, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) physical: Option<Vec<String>>,
}

/// One holder.
#[derive(Serialize)]
pub(super) struct Hold {
    /// `None`: no client of Tenure's.
    pub(super) owner: Option<String>,
    pub(super) mode: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) take: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) of: Option<u32>,
    pub(super) host: Option<String>,
    pub(super) pid: Option<u32>,
    pub(super) since: Option<String>,
    pub(super) remaining_ms: u64,
    pub(super) raw_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) value_base64: Option<String>,
}

impl Row {
    pub(super) fn of(key: &Key, engine: &'static str, view: &View, physical: bool) -> Row {
        Row {
            key: key.as_str().to_owned(),
            engine,
            holders: view.holders.iter().map(Hold::of).collect(),
            waiting: view.waiters.len(),
            physical: physical.then(|| view.physical.clone()),
        }
    }

    /// A key that was shown and is free now.
    pub(super) fn free(self) -> Row {
        Row { holders: Vec::new(), waiting: 0, ..self }
    }

    /// Whether it shows the same, but for the time that passes.
    pub(super) fn is_like(&self, other: &Row) -> bool {
        let same = |(one, other): (&Hold, &Hold)| {
            (&one.owner, one.mode, one.take, one.of, &one.host, one.pid, &one.since)
                == (&other.owner, other.mode, other.take, other.of, &other.host, other.pid, &other.since)
                && (&one.raw_token, &one.value, &one.value_base64)
                    == (&other.raw_token, &other.value, &other.value_base64)
        };
        (self.waiting, self.holders.len()) == (other.waiting, other.holders.len())
            && self.holders.iter().zip(&other.holders).all(same)
    }
}

impl Hold {
    pub(super) fn of(holder: &Holder) -> Hold {
        let (take, of) = match holder.mode {
            Mode::Permits { take, of } => (Some(take), Some(of)),
            _ => (None, None),
        };
        let text = String::from_utf8(holder.value.clone()).ok();
        let is_there = !holder.value.is_empty();
        let Host { host, pid } = Host::of_holder(holder);
        Hold {
            owner: holder.owner.map(|owner| owner.to_string()),
            mode: host::mode(holder.mode),
            take,
            of,
            host,
            pid,
            since: holder.since_unix_ms.and_then(json::stamp),
            remaining_ms: json::millis(holder.remaining),
            raw_token: holder.raw.map(|raw| raw.to_string()),
            value_base64: (is_there && text.is_none()).then(|| STANDARD.encode(&holder.value)),
            value: text.filter(|_| is_there),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use tenure::Owner;
    use tenure::engine::Wake;

    use super::*;

    /// A view with a holder of ours and one that is not.
    pub(in crate::who) fn view() -> View {
        let ours = Holder {
            owner: Some(Owner::from_id(0xab)),
            mode: Mode::Permits { take: 1, of: 3 },
            remaining: Duration::from_millis(27_500),
            raw: Some(1_764_500_000_000_000),
            host: Some("42@db-1".to_owned()),
            since_unix_ms: Some(1_764_556_205_007),
            value: b"build 7".to_vec(),
        };
        let foreign = Holder {
            owner: None,
            mode: Mode::Exclusive,
            raw: None,
            host: None,
            since_unix_ms: None,
            value: vec![0xff],
            ..ours.clone()
        };
        View {
            holders: vec![ours, foreign],
            waiters: vec![Owner::from_id(1)],
            note: None,
            physical: vec!["p:jobs/1".to_owned()],
            wake: Wake::never(),
        }
    }

    #[test]
    fn golden_line() {
        let row = Row::of(&Key::new("jobs/1").unwrap(), "redis", &view(), true);
        assert_eq!(
            json::line(&row),
            concat!(
                r#"{"v":1,"key":"jobs/1","engine":"redis","holders":["#,
                r#"{"owner":"000000000000000000000000000000ab","mode":"permits","take":1,"of":3,"#,
                r#""host":"db-1","pid":42,"since":"2025-12-01T02:30:05.007Z","remaining_ms":27500,"#,
                r#""raw_token":"1764500000000000","value":"build 7"},"#,
                r#"{"owner":null,"mode":"exclusive","host":null,"pid":null,"since":null,"#,
                r#""remaining_ms":27500,"raw_token":null,"value_base64":"/w=="}],"#,
                r#""waiting":1,"physical":["p:jobs/1"]}"#
            )
        );
    }

    #[test]
    fn time_that_passes_is_no_change() {
        let key = Key::new("k").unwrap();
        let row = |view: &View| Row::of(&key, "redis", view, false);
        let (first, mut later) = (view(), view());
        later.holders[0].remaining = Duration::from_secs(1);
        assert!(row(&first).is_like(&row(&later)));
        later.holders[0].owner = Some(Owner::from_id(2));
        assert!(!row(&first).is_like(&row(&later)));
        later = view();
        later.waiters.clear();
        assert!(!row(&first).is_like(&row(&later)));
        assert!(!row(&first).is_like(&row(&first).free()));
    }
}
