//! Who a holder is: `pid@host`, as engines tell it.

use tenure::engine::{Holder, Mode};

/// Host and process, where the holder told them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) host: Option<String>,
    pub(crate) pid: Option<u32>,
}

impl Host {
    pub(crate) fn of(told: Option<&str>) -> Host {
        let Some(told) = told else { return Host::default() };
        let parts = told.split_once('@').and_then(|(pid, host)| Some((pid.parse().ok()?, host)));
        match parts {
            Some((pid, host)) => Host { host: Some(host.to_owned()), pid: Some(pid) },
            None => Host { host: Some(told.to_owned()), pid: None },
        }
    }

    pub(crate) fn of_holder(holder: &Holder) -> Host {
        Host::of(holder.host.as_deref())
    }
}

/// A mode in one word.
pub(crate) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Permits { .. } => "permits",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_taken_apart() {
        let host = |host: &str, pid| Host { host: Some(host.to_owned()), pid };
        assert_eq!(Host::of(Some("42@db-1")), host("db-1", Some(42)));
        assert_eq!(Host::of(Some("42@db@1")), host("db@1", Some(42)));
        assert_eq!(Host::of(Some("x@db")), host("x@db", None));
        assert_eq!(Host::of(Some("db")), host("db", None));
        assert_eq!(Host::of(None), Host { host: None, pid: None });
    }
}
