//! Which physical names a key has on Redis (R9). A wire format: other versions read them.
//!
//! The lock is `<prefix><key>`, plain, so that programs with the `SET … NX PX` convention see the
//! same lock. What Tenure needs beside it is `<prefix>tenure:{tag}:…` in the same cluster slot.

use std::sync::OnceLock;

use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;

/// A name in parts; joined they are the name.
pub(super) type Parts<'a> = [&'a [u8]; 7];

const HELPER: &str = "tenure:{";
const COUNTER: &str = "tenure:token";
const COUNTER_RUN: &str = "tenure:token:run";
const MAIL: &str = "tenure:mail:";

/// Checks a prefix: a brace in it must belong to a whole hash tag, or the slots of helpers could
/// not be told.
pub(super) fn check_prefix(prefix: &str) -> Result<()> {
    if prefix.chars().any(char::is_control) || prefix.len() > 256 {
        return Err(Error::new(
            ErrorKind::Invalid,
            "a prefix has at most 256 bytes and no control characters",
        ));
    }
    if prefix.contains('{') && tag_of(prefix).is_none() {
        let what = format!("the prefix \"{prefix}\" holds a brace without a whole hash tag");
        return Err(Error::new(ErrorKind::Invalid, what).advice("use none, or a whole one such as {app}"));
    }
    Ok(())
}

/// The physical names of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    prefix: &'a str,
    key: &'a str,
    tag: Tag<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Tag<'a> {
    /// The lock's own hash tag.
    Own(&'a str),
    /// The whole name of the lock.
    Whole,
    /// A number that lies in the lock's slot, since its name cannot stand between braces.
    Number(&'static str),
}

impl<'a> Names<'a> {
    /// The one function from keys to names.
    ///
    /// # Errors
    /// `Invalid` for the few keys that are names of helpers themselves.
    pub(super) fn new(prefix: &'a str, key: &'a Key) -> Result<Names<'a>> {
        let key = key.as_str();
        if key.starts_with("tenure:") && (key.starts_with(HELPER) || key == COUNTER || key == COUNTER_RUN) {
            let what = "this name is used for what Tenure keeps beside locks";
            return Err(Error::new(ErrorKind::Invalid, what).advice("choose another key, or set a prefix"));
        }
        let tag = if let Some(tag) = tag_of(prefix).or_else(|| tag_of(key)) {
            Tag::Own(tag)
        } else if prefix.contains('}') || key.contains('}') {
            Tag::Number(number_in_slot(slot_of_parts(prefix, key)))
        } else {
            Tag::Whole
        };
        Ok(Names { prefix, key, tag })
    }

    /// The lock itself.
    pub(super) fn lock(&self) -> Parts<'a> {
        [self.prefix.as_bytes(), self.key.as_bytes(), b"", b"", b"", b"", b""]
    }

    /// The order of those who wait: a sorted set of owners by arrival.
    pub(super) fn queue(&self) -> Parts<'a> {
        self.helper(b"}:queue", b"}:queue:")
    }

    /// What is known of those who wait: a hash by owner.
    pub(super) fn entries(&self) -> Parts<'a> {
        self.helper(b"}:entries", b"}:entries:")
    }

    /// The record beside the lock.
    pub(super) fn note(&self) -> Parts<'a> {
        self.helper(b"}:note", b"}:note:")
    }

    /// All of them, for people: the lock first.
    pub(super) fn all(&self) -> Vec<String> {
        let all = [self.lock(), self.queue(), self.entries(), self.note()];
        all.iter().map(|parts| String::from_utf8_lossy(&parts.concat()).into_owned()).collect()
    }

    fn helper(&self, alone: &'static [u8], before_name: &'static [u8]) -> Parts<'a> {
        let (prefix, key) = (self.prefix.as_bytes(), self.key.as_bytes());
        match self.tag {
            Tag::Whole => [prefix, HELPER.as_bytes(), prefix, key, alone, b"", b""],
            Tag::Own(tag) => [prefix, HELPER.as_bytes(), tag.as_bytes(), before_name, prefix, key, b""],
            Tag::Number(tag) => [prefix, HELPER.as_bytes(), tag.as_bytes(), before_name, prefix, key, b""],
        }
    }
}

/// The counter of tokens: one per server and prefix.
pub(super) fn counter(prefix: &str) -> Vec<u8> {
    [prefix.as_bytes(), COUNTER.as_bytes()].concat()
}

/// The run id of the server that last raised the counter.
pub(super) fn counter_run(prefix: &str) -> Vec<u8> {
    [prefix.as_bytes(), COUNTER_RUN.as_bytes()].concat()
}

/// The channel of one client.
pub(super) fn channel(prefix: &str, client: crate::Owner) -> Vec<u8> {
    format!("{prefix}{MAIL}{client}").into_bytes()
}

/// The effective hash tag of a name: between the first `{` and the first `}` after it, if not empty.
fn tag_of(name: &str) -> Option<&str> {
    let rest = &name[name.find('{')? + 1..];
    let tag = &rest[..rest.find('}')?];
    (!tag.is_empty()).then_some(tag)
}

fn slot_of_parts(prefix: &str, key: &str) -> u16 {
    crc16(crc16(0, prefix.as_bytes()), key.as_bytes()) % 16384
}

/// CRC16 as Redis Cluster uses it (XMODEM), going on from an earlier part.
fn crc16(start: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(start, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

/// The smallest number whose digits lie in the slot. The table is made at its first, rare, use.
fn number_in_slot(slot: u16) -> &'static str {
    static NUMBERS: OnceLock<Vec<String>> = OnceLock::new();
    let numbers = NUMBERS.get_or_init(|| {
        let mut numbers = vec![String::new(); 16384];
        let mut missing = numbers.len();
        for number in 0_u32.. {
            let digits = number.to_string();
            let place = &mut numbers[usize::from(crc16(0, digits.as_bytes()) % 16384)];
            if place.is_empty() {
                *place = digits;
                missing -= 1;
                if missing == 0 {
                    break;
                }
            }
        }
        numbers
    });
    &numbers[usize::from(slot)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn joined(parts: Parts<'_>) -> String {
        String::from_utf8(parts.concat()).unwrap()
    }

    /// As a cluster node computes it, apart from the code above.
    fn slot(name: &str) -> u16 {
        crc16(0, tag_of(name).unwrap_or(name).as_bytes()) % 16384
    }

    #[test]
    fn crc16_is_the_one_of_the_cluster_specification() {
        assert_eq!(crc16(0, b"123456789"), 0x31C3);
    }

    #[test]
    fn golden_names() {
        let names = |prefix, key: &str| {
            let key = Key::new(key).unwrap();
            let names = Names::new(prefix, &key).unwrap();
            let each = [names.lock(), names.queue(), names.entries(), names.note()].map(joined);
            assert_eq!(names.all(), each);
            each
        };
        assert_eq!(
            names("", "orders/42"),
            [
                "orders/42",
                "tenure:{orders/42}:queue",
                "tenure:{orders/42}:entries",
                "tenure:{orders/42}:note"
            ]
        );
        assert_eq!(names("app:", "a")[..2], ["app:a", "app:tenure:{app:a}:queue"]);
        assert_eq!(names("", "a{x}b")[..2], ["a{x}b", "tenure:{x}:queue:a{x}b"]);
        assert_eq!(names("{p}", "a{x}b")[..2], ["{p}a{x}b", "{p}tenure:{p}:queue:{p}a{x}b"]);
        assert_eq!(names("", "a}b")[..2], ["a}b", "tenure:{20658}:queue:a}b"]);
        assert_eq!(counter("app:"), b"app:tenure:token");
        assert_eq!(counter_run(""), b"tenure:token:run");
        assert_eq!(
            channel("app:", crate::Owner::from_id(1)),
            b"app:tenure:mail:00000000000000000000000000000001"
        );
    }

    #[test]
    fn keys_that_are_helpers_are_refused() {
        for name in ["tenure:token", "tenure:token:run", "tenure:{a}:queue"] {
            let error = Names::new("", &Key::new(name).unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
        assert!(Names::new("", &Key::new("tenure:tokens").unwrap()).is_ok());
        assert!(check_prefix("a{b:").is_err());
        assert!(check_prefix("{}").is_err());
        assert!(check_prefix("a}b").is_ok());
        assert!(check_prefix("{app}:").is_ok());
    }

    proptest! {
        #[test]
        fn helpers_share_the_slot_of_the_lock(prefix in "([a}:]{0,3}|\\{[ab]{1,2}\\}[a{}]{0,3})", key in "[ab{}:é]{1,12}") {
            prop_assume!(check_prefix(&prefix).is_ok());
            let key = Key::new(&key).unwrap();
            if let Ok(names) = Names::new(&prefix, &key) {
                let lock = slot(&joined(names.lock()));
                for helper in [names.queue(), names.entries(), names.note()] {
                    prop_assert_eq!(slot(&joined(helper)), lock);
                }
            }
        }

        #[test]
        fn two_keys_never_share_a_helper(a in "[a{}:q]{1,10}", b in "[a{}:q]{1,10}") {
            prop_assume!(a != b);
            let (a, b) = (Key::new(&a).unwrap(), Key::new(&b).unwrap());
            if let (Ok(a), Ok(b)) = (Names::new("", &a), Names::new("", &b)) {
                prop_assert_ne!(joined(a.queue()), joined(b.queue()));
            }
        }
    }
}
