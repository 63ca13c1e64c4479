//! What stands in the lock's key (R10): `t1:<32 hex>:<pid>@<host>:<unix ms>[:<base64 value>]`.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::key::Owner;

/// The length of `t1:<32 hex>:`.
const PREFIX_BYTES: usize = 36;
/// What a marker of shared or permit holders starts with.
const SHARED: &[u8] = b"t1:shared:";

/// What every value of an owner starts with, and nobody else's: `t1:<32 hex>:`.
pub(super) fn owner_prefix(owner: Owner) -> [u8; PREFIX_BYTES] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut prefix = *b"t1:00000000000000000000000000000000:";
    let mut id = owner.id();
    for place in prefix[3..35].iter_mut().rev() {
        *place = DIGITS[(id & 15) as usize];
        id >>= 4;
    }
    prefix
}

/// `<pid>@<host>` of this process, of letters that separate nothing.
pub(super) fn identity() -> String {
    let name = rustix::system::uname();
    let host: String = name
        .nodename()
        .to_string_lossy()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' })
        .collect();
    format!("{}@{}", std::process::id(), host)
}

/// Milliseconds since 1970, for people only.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}

/// The value of a hold.
pub(super) fn encode(owner: Owner, identity: &str, unix_ms: u64, value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PREFIX_BYTES + identity.len() + 16 + value.len() * 4 / 3 + 4);
    out.extend_from_slice(&owner_prefix(owner));
    out.extend_from_slice(identity.as_bytes());
    out.push(b':');
    out.extend_from_slice(super::wire::decimal(unix_ms, &mut [0; 20]));
    if !value.is_empty() {
        out.push(b':');
        out.extend_from_slice(STANDARD.encode(value).as_bytes());
    }
    out
}

/// What a value says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) owner: Owner,
    pub(super) host: Option<String>,
    pub(super) since_unix_ms: Option<u64>,
    pub(super) value: Vec<u8>,
}

/// Reads a value; `None` if it is not one of an exclusive holder of ours.
pub(super) fn decode(raw: &[u8]) -> Option<Said> {
    let text = std::str::from_utf8(raw).ok()?;
    let (owner, rest) = text.strip_prefix("t1:")?.split_once(':')?;
    let mut fields = rest.splitn(3, ':');
    Some(Said {
        owner: owner.parse().ok()?,
        host: fields.next().filter(|host| !host.is_empty()).map(str::to_owned),
        since_unix_ms: fields.next().and_then(|since| since.parse().ok()),
        value: fields.next().and_then(|value| STANDARD.decode(value).ok()).unwrap_or_default(),
    })
}

/// Whether a value was written by Tenure, so that its end will be told.
pub(super) fn is_ours(raw: &[u8]) -> bool {
    raw.starts_with(SHARED) || decode(raw).is_some()
}

/// The holder, for people. A foreign value may be the secret that proves ownership: never shown.
pub(super) fn describe(raw: &[u8]) -> Option<String> {
    match decode(raw) {
        Some(said) => said.host,
        None if raw.starts_with(SHARED) => Some("shared holders".to_owned()),
        None => Some("a program other than Tenure".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_value() {
        let owner = Owner::from_id(0x0123_4567_89ab_cdef_0000_0000_0000_00ff);
        let plain = encode(owner, "77@web-1", 1_764_500_000_123, b"");
        assert_eq!(plain, b"t1:0123456789abcdef00000000000000ff:77@web-1:1764500000123");
        assert!(plain.starts_with(&owner_prefix(owner)));
        let with = encode(owner, "77@web-1", 1_764_500_000_123, b"hi\n");
        assert_eq!(with, b"t1:0123456789abcdef00000000000000ff:77@web-1:1764500000123:aGkK");
        let said = decode(&with).unwrap();
        assert_eq!(said.owner, owner);
        assert_eq!(said.host.as_deref(), Some("77@web-1"));
        assert_eq!(said.since_unix_ms, Some(1_764_500_000_123));
        assert_eq!(said.value, b"hi\n");
    }

    #[test]
    fn foreign_values_are_told_apart_and_never_shown() {
        assert!(!is_ours(b"3f9a-secret"));
        assert!(!is_ours(b"t1:short:x"));
        assert!(is_ours(b"t1:shared:0123456789abcdef00000000000000ff"));
        assert!(!describe(b"3f9a-secret").unwrap().contains("secret"));
    }

    #[test]
    fn an_identity_separates_nothing() {
        let identity = identity();
        assert!(!identity.contains([':', '|']), "{identity}");
        assert!(identity.starts_with(&format!("{}@", std::process::id())));
    }
}
