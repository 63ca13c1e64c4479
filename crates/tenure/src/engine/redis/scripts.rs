//! The scripts that decide on the server, and how they are called: by hash, by text if the server
//! does not know the hash.

use std::sync::OnceLock;

use super::wire::Encoder;

/// A script. Every key it touches is declared.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) name: &'static str,
    text: &'static str,
    keys: u64,
    hash: OnceLock<String>,
}

macro_rules! script {
    ($(#[$doc:meta])* $constant:ident, $name:literal, $keys:literal, $($file:literal),+) => {
        $(#[$doc])*
        pub(super) static $constant: Script = Script {
            name: $name,
            text: concat!($(include_str!($file)),+),
            keys: $keys,
            hash: OnceLock::new(),
        };
    };
}

script!(CLAIM, "claim", 4, "lua/common.lua", "lua/claim.lua");
script!(RELEASE, "release", 4, "lua/release_free.lua", "lua/common.lua", "lua/release.lua");
script!(RENEW, "renew", 4, "lua/common.lua", "lua/renew.lua");
script!(NOTE, "note", 2, "lua/note.lua");
script!(LOOK, "look", 4, "lua/look.lua");
script!(RAISE, "raise", 2, "lua/raise.lua");
script!(PROBE, "probe", 4, "lua/probe.lua");

impl Script {
    /// Begins a call by hash with so many arguments beside the keys. Keys and arguments follow.
    pub(super) fn call<'a>(&self, encoder: &'a mut Encoder, arguments: usize) -> &'a mut Encoder {
        self.begin(encoder, arguments).word(b"EVALSHA").word(self.hash().as_bytes()).number(self.keys)
    }

    /// Begins a call with the text.
    pub(super) fn call_in_full<'a>(&self, encoder: &'a mut Encoder, arguments: usize) -> &'a mut Encoder {
        self.begin(encoder, arguments).word(b"EVAL").word(self.text.as_bytes()).number(self.keys)
    }

    /// Makes the call with the text of an encoded call by hash.
    pub(super) fn in_full(&self, by_hash: &[u8]) -> Vec<u8> {
        // `*<words>\r\n`, then `$7 EVALSHA` and `$40 <hash>` of known length.
        let head = by_hash.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let words_end = head + b"$7\r\nEVALSHA\r\n$40\r\n".len() + 40 + 2;
        let mut encoder = Encoder::with_capacity(by_hash.len() + self.text.len() + 16);
        encoder.raw(&by_hash[..head]).word(b"EVAL").word(self.text.as_bytes()).raw(&by_hash[words_end..]);
        encoder.into_bytes()
    }

    fn begin<'a>(&self, encoder: &'a mut Encoder, arguments: usize) -> &'a mut Encoder {
        let keys = usize::try_from(self.keys).unwrap_or(0);
        encoder.command(3 + keys + arguments)
    }

    fn hash(&self) -> &str {
        self.hash.get_or_init(|| sha1_smol::Sha1::from(self.text).hexdigest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_by_hash_becomes_the_same_call_with_the_text() {
        let arguments = |encoder: &mut Encoder| {
            encoder.word(b"lock").word(b"note").word(b"t1:x:").word(b"record\r\n");
        };
        let (mut by_hash, mut in_full) = (Encoder::default(), Encoder::default());
        NOTE.call(&mut by_hash, 2);
        arguments(&mut by_hash);
        NOTE.call_in_full(&mut in_full, 2);
        arguments(&mut in_full);
        let (by_hash, in_full) = (by_hash.into_bytes(), in_full.into_bytes());
        assert!(by_hash.len() < in_full.len());
        assert_eq!(NOTE.in_full(&by_hash), in_full);
    }

    #[test]
    fn hashes_are_those_of_the_server() {
        // `redis-cli SCRIPT LOAD "return 1"`
        assert_eq!(sha1_smol::Sha1::from("return 1").hexdigest(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    }
}
