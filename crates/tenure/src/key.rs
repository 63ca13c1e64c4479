//! The names of things: keys, owners, tokens.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// The name of the thing held: UTF-8, 1 to 1,024 bytes, without control characters, case-sensitive.
///
/// Keys are compared byte by byte. A key that is a path prefix of another is another key.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// Checks a name.
    ///
    /// # Errors
    /// `Invalid` if it is empty, longer than 1,024 bytes, or holds a control character.
    pub fn new(name: impl AsRef<str>) -> Result<Key> {
        let name = name.as_ref();
        let complaint = if name.is_empty() {
            "a key must not be empty".to_owned()
        } else if name.len() > MAX_KEY_BYTES {
            format!("a key has at most {MAX_KEY_BYTES} bytes, this one has {}", name.len())
        } else if name.chars().any(char::is_control) {
            format!("a key must not hold control characters: \"{}\"", name.escape_debug())
        } else {
            return Ok(Key(name.into()));
        };
        Err(Error::new(ErrorKind::Invalid, complaint))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &self.0)
    }
}

/// The random 128-bit id of one stay. Written as 32 hexadecimal digits, compared in full.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(u128);

impl Owner {
    /// The owner with this id. Ids come from [`Background::owner`](crate::Background::owner).
    #[must_use]
    pub const fn from_id(id: u128) -> Owner {
        Owner(id)
    }

    /// The id.
    #[must_use]
    pub const fn id(self) -> u128 {
        self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Owner {
    type Err = Error;

    fn from_str(text: &str) -> Result<Owner> {
        let id = (text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit()))
            .then(|| u128::from_str_radix(text, 16).ok())
            .flatten();
        id.map(Owner)
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "an owner is written as 32 hexadecimal digits"))
    }
}

/// The fencing token: a number below 2^63 that grows with every grant of a key.
///
/// It is `raw << 10 | turn`: `raw` is the store's own number, below 2^53; `turn` counts the tasks
/// of one client that used the same grant one after another. Text is decimal; JSON carries it as a
/// string, since a double cannot hold it.
///
/// Give it to whatever the lock protects, and let that refuse a smaller one than it has seen.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    /// Bits that count turns.
    pub const TURN_BITS: u32 = 10;
    /// Turns one grant can have.
    pub const TURNS: u64 = 1 << Token::TURN_BITS;
    /// The first raw number that is too large.
    pub const RAW_END: u64 = 1 << 53;

    /// The token of a turn; `None` if a part is out of range.
    #[must_use]
    pub const fn new(raw: u64, turn: u64) -> Option<Token> {
        if raw < Token::RAW_END && turn < Token::TURNS {
            Some(Token(raw << Token::TURN_BITS | turn))
        } else {
            None
        }
    }

    /// The whole number, to be compared by a resource.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The store's own number.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0 >> Token::TURN_BITS
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Token {
    type Err = Error;

    fn from_str(text: &str) -> Result<Token> {
        let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = plain.then(|| text.parse::<u64>().ok()).flatten().filter(|n| *n < 1 << 63);
        number
            .map(Token)
            .ok_or_else(|| Error::new(ErrorKind::Invalid, "a token is a decimal number below 2^63"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_checked_before_anything_is_sent() {
        assert!(Key::new("").unwrap_err().to_string().contains("must not be empty"));
        assert!(Key::new("x".repeat(1024)).is_ok());
        assert!(Key::new("x".repeat(1025)).unwrap_err().to_string().contains("1025"));
        let message = Key::new("a\u{7}b\nc").unwrap_err().to_string();
        assert!(message.contains("a\\u{7}b\\nc"), "{message}");
        assert_ne!(Key::new("a").unwrap(), Key::new("A").unwrap());
    }

    #[test]
    fn golden_token_encoding() {
        let token = Token::new(1_764_500_000_000_000, 3).unwrap();
        assert_eq!(token.to_string(), "1806848000000000003");
        assert_eq!(token.raw(), 1_764_500_000_000_000);
        assert_eq!("1806848000000000003".parse::<Token>().unwrap(), token);
        assert_eq!(Token::new(Token::RAW_END - 1, Token::TURNS - 1).unwrap().get(), (1 << 63) - 1);
        assert!(Token::new(Token::RAW_END, 0).is_none());
        assert!(Token::new(1, Token::TURNS).is_none());
        assert!("+5".parse::<Token>().is_err());
        assert!((1u64 << 63).to_string().parse::<Token>().is_err());
    }

    #[test]
    fn golden_owner_encoding() {
        let owner = Owner::from_id(0xab);
        assert_eq!(owner.to_string(), "000000000000000000000000000000ab");
        assert_eq!(owner.to_string().parse::<Owner>().unwrap(), owner);
        assert!("ab".parse::<Owner>().is_err());
        assert!("+00000000000000000000000000000ab".parse::<Owner>().is_err());
    }
}
