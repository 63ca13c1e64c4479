//! The requests, byte for byte.

use std::time::Duration;

use super::connection::Request;
use super::names::Names;
use super::scripts::{CLAIM, LOOK, NOTE, RELEASE, RENEW};
use super::value::owner_prefix;
use super::wire::Encoder;
use crate::engine::Stake;
use crate::key::Owner;
use crate::time::{millis, pushed_term, refresh_interval};

/// What a claim consists of.
#[derive(Debug)]
pub(super) struct ClaimParts<'a> {
    pub(super) names: Names<'a>,
    pub(super) owner: Owner,
    pub(super) term: Duration,
    pub(super) value: &'a [u8],
    pub(super) join: bool,
}

/// How long a place lasts without being refreshed.
fn patience(term: Duration) -> u64 {
    millis(refresh_interval(term) * 3)
}

/// The free case: take the key, a number for it, and a look whether that passed a queue.
pub(super) fn enter(claim: &ClaimParts<'_>, counter: &[u8]) -> Request {
    let mut out = Encoder::with_capacity(320 + claim.value.len());
    out.command(6).word(b"SET").parts(&claim.names.lock()).word(claim.value);
    out.word(b"NX").word(b"PX").number(millis(claim.term));
    out.command(2).word(b"INCR").word(counter);
    out.command(2).word(b"EXISTS").parts(&claim.names.queue());
    Request::plain(out.into_bytes(), 3)
}

/// The other cases. `fresh`: [`enter`] made a hold that may not stand.
pub(super) fn claim(
    claim: &ClaimParts<'_>,
    counter: &[u8],
    channel: &[u8],
    floor: u64,
    fresh: bool,
) -> Request {
    let mut out = Encoder::with_capacity(640 + claim.value.len());
    common(CLAIM.call(&mut out, 10), claim.names, counter);
    identity(&mut out, claim.owner).number(millis(claim.term)).word(claim.value);
    out.number(millis(pushed_term(claim.term))).number(patience(claim.term)).word(channel);
    out.word(flag(claim.join)).number(floor).word(flag(fresh));
    Request::script(&CLAIM, out.into_bytes())
}

/// Gives back. Carried out even if nobody waits for its answer.
pub(super) fn release(names: Names<'_>, owner: Owner, counter: &[u8], floor: u64) -> Request {
    let mut out = Encoder::with_capacity(512);
    common(RELEASE.call(&mut out, 2), names, counter);
    out.word(&owner_prefix(owner)).number(floor);
    Request { must: true, ..Request::script(&RELEASE, out.into_bytes()) }
}

/// Adds the renewal of a stake. `in_full`: with the text of the script.
pub(super) fn renew(
    out: &mut Encoder,
    names: Names<'_>,
    stake: &Stake,
    counter: &[u8],
    floor: u64,
    in_full: bool,
) {
    if in_full {
        RENEW.call_in_full(out, 5);
    } else {
        RENEW.call(out, 5);
    }
    common(out, names, counter);
    identity(out, stake.owner).number(millis(stake.term)).number(patience(stake.term)).number(floor);
}

pub(super) fn note(names: Names<'_>, owner: Owner, record: &[u8]) -> Request {
    let mut out = Encoder::with_capacity(320 + record.len());
    NOTE.call(&mut out, 2).parts(&names.lock()).parts(&names.note());
    out.word(&owner_prefix(owner)).word(record);
    Request::script(&NOTE, out.into_bytes())
}

pub(super) fn look(names: Names<'_>) -> Request {
    let mut out = Encoder::with_capacity(320);
    LOOK.call(&mut out, 0)
        .parts(&names.lock())
        .parts(&names.queue())
        .parts(&names.entries())
        .parts(&names.note());
    Request::script(&LOOK, out.into_bytes())
}

/// One step through all names that start with a text.
pub(super) fn scan(cursor: &str, prefix: &str, starts_with: &str) -> Request {
    let pattern: String = prefix
        .chars()
        .chain(starts_with.chars())
        .flat_map(|c| [if "*?[]\\^".contains(c) { Some('\\') } else { None }, Some(c)])
        .flatten()
        .chain(['*'])
        .collect();
    let mut out = Encoder::default();
    out.command(8).word(b"SCAN").word(cursor.as_bytes()).word(b"MATCH").word(pattern.as_bytes());
    out.word(b"COUNT").number(1000).word(b"TYPE").word(b"string");
    Request::plain(out.into_bytes(), 1)
}

/// The beginnings of values, to tell locks from other strings without fetching these.
pub(super) fn beginnings(names: &[&[u8]]) -> Request {
    let mut out = Encoder::default();
    for name in names {
        out.command(4).word(b"GETRANGE").word(name).number(0).number(2);
    }
    Request::plain(out.into_bytes(), names.len())
}

fn common(out: &mut Encoder, names: Names<'_>, counter: &[u8]) {
    out.parts(&names.lock()).parts(&names.queue()).parts(&names.entries()).word(counter);
}

fn identity(out: &mut Encoder, owner: Owner) -> &mut Encoder {
    let prefix = owner_prefix(owner);
    out.word(&prefix).word(&prefix[3..35])
}

fn flag(flag: bool) -> &'static [u8] {
    if flag { b"1" } else { b"0" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Key;

    #[test]
    fn golden_free_claim() {
        let key = Key::new("a").unwrap();
        let parts = ClaimParts {
            names: Names::new("", &key).unwrap(),
            owner: Owner::from_id(1),
            term: Duration::from_secs(30),
            value: b"v",
            join: true,
        };
        let request = enter(&parts, b"tenure:token");
        let expected = "*6\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nv\r\n$2\r\nNX\r\n$2\r\nPX\r\n$5\r\n30000\r\n\
            *2\r\n$4\r\nINCR\r\n$12\r\ntenure:token\r\n*2\r\n$6\r\nEXISTS\r\n$16\r\ntenure:{a}:queue\r\n";
        assert_eq!(String::from_utf8(request.bytes).unwrap(), expected);
        assert_eq!(request.replies, 3);
    }

    #[test]
    fn a_listing_takes_its_text_literally() {
        let request = scan("0", "p:", "a*[b");
        let text = String::from_utf8(request.bytes).unwrap();
        assert!(text.contains("\r\np:a\\*\\[b*\r\n"), "{text}");
    }
}
