//! The Redis protocol: an encoder for commands, and a parser that goes on where the bytes ended.
//!
//! Own code, because the stock client's pipelines cost half of the reachable speed; RESP3 (`HELLO 3`),
//! so that pushes and replies share a connection and their order is the server's.

use std::fmt;

/// Larger lengths in a reply are refused as nonsense.
const LONGEST_TEXT: usize = 256 << 20;
/// More elements in one aggregate are refused as nonsense.
const MOST_ELEMENTS: usize = 1 << 20;
/// Deeper nesting is refused as nonsense.
const DEEPEST: usize = 8;

/// A value in a reply.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Value {
    Nil,
    /// `+OK`, by far the most frequent status.
    Ok,
    Int(i64),
    /// A string of any kind.
    Text(Vec<u8>),
    /// An array, a set, or a map as keys and values in turn.
    List(Vec<Value>),
    /// What the server refused, starting with its code.
    Error(String),
    /// A message that is no reply.
    Push(Vec<Value>),
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Nil => f.write_str("nil"),
            Value::Ok => f.write_str("OK"),
            Value::Int(n) => write!(f, "{n}"),
            Value::Text(text) => write!(f, "\"{}\"", text.escape_ascii()),
            Value::List(items) => f.debug_list().entries(items).finish(),
            Value::Error(text) => write!(f, "error {text:?}"),
            Value::Push(items) => f.debug_tuple("push").field(items).finish(),
        }
    }
}

impl Value {
    /// The string, if it is one.
    pub(super) fn text(&self) -> Option<&[u8]> {
        match self {
            Value::Text(text) => Some(text),
            Value::Ok => Some(b"OK"),
            _ => None,
        }
    }

    /// The number, if it is one that is not negative.
    pub(super) fn count(&self) -> Option<u64> {
        match self {
            Value::Int(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }
}

/// Writes commands one behind the other.
#[derive(Debug, Default)]
pub(super) struct Encoder(Vec<u8>);

impl Encoder {
    pub(super) fn with_capacity(bytes: usize) -> Encoder {
        Encoder(Vec::with_capacity(bytes))
    }

    /// Begins a command of so many words, its name included.
    pub(super) fn command(&mut self, words: usize) -> &mut Encoder {
        self.head(b'*', words as u64)
    }

    pub(super) fn word(&mut self, word: &[u8]) -> &mut Encoder {
        self.head(b'$', word.len() as u64);
        self.0.extend_from_slice(word);
        self.end()
    }

    /// A word that consists of parts, written without joining them first.
    pub(super) fn parts(&mut self, parts: &[&[u8]]) -> &mut Encoder {
        self.head(b'$', parts.iter().map(|part| part.len() as u64).sum());
        for part in parts {
            self.0.extend_from_slice(part);
        }
        self.end()
    }

    pub(super) fn number(&mut self, number: u64) -> &mut Encoder {
        let mut digits = [0; 20];
        let digits = decimal(number, &mut digits);
        self.word(digits)
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Bytes that are encoded already.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> &mut Encoder {
        self.0.extend_from_slice(bytes);
        self
    }

    fn head(&mut self, mark: u8, number: u64) -> &mut Encoder {
        self.0.push(mark);
        let mut digits = [0; 20];
        self.0.extend_from_slice(decimal(number, &mut digits));
        self.end()
    }

    fn end(&mut self) -> &mut Encoder {
        self.0.extend_from_slice(b"\r\n");
        self
    }
}

/// The decimal digits of a number, without going through the formatting machinery.
pub(super) fn decimal(mut number: u64, space: &mut [u8; 20]) -> &[u8] {
    let mut at = space.len();
    loop {
        at -= 1;
        // A digit always fits.
        #[allow(clippy::cast_possible_truncation)]
        let digit = (number % 10) as u8;
        space[at] = b'0' + digit;
        number /= 10;
        if number == 0 {
            return &space[at..];
        }
    }
}

/// The peer does not speak this protocol.
#[derive(Debug)]
pub(super) struct Nonsense(pub(super) &'static str);

/// Bytes that arrived and were not understood yet.
#[derive(Debug)]
pub(super) struct Incoming {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Incoming {
    const SPACE: usize = 64 << 10;

    pub(super) fn new() -> Incoming {
        Incoming { bytes: vec![0; Incoming::SPACE], start: 0, end: 0 }
    }

    /// Where the next bytes are to be put. Never empty.
    pub(super) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            // A large answer must not keep its memory for ever.
            if self.bytes.len() > 16 * Incoming::SPACE {
                self.bytes = vec![0; Incoming::SPACE];
            }
        }
        if self.bytes.len() - self.end < Incoming::SPACE / 4 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.bytes.len() - self.end < Incoming::SPACE / 2 {
                let larger = self.bytes.len() * 2;
                self.bytes.resize(larger, 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// So many bytes were put there.
    pub(super) fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// The next value; `None` if its end has not arrived.
    pub(super) fn next(&mut self) -> Result<Option<Value>, Nonsense> {
        let mut reader = Reader { bytes: &self.bytes[self.start..self.end], at: 0 };
        match reader.value(0) {
            Ok(value) => {
                self.start += reader.at;
                Ok(Some(value))
            }
            Err(Stop::Incomplete) => Ok(None),
            Err(Stop::Nonsense(why)) => Err(Nonsense(why)),
        }
    }
}

enum Stop {
    Incomplete,
    Nonsense(&'static str),
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Result<Value, Stop> {
        if depth > DEEPEST {
            return Err(Stop::Nonsense("a reply is nested too deeply"));
        }
        let mark = *self.bytes.get(self.at).ok_or(Stop::Incomplete)?;
        self.at += 1;
        let line = self.line()?;
        Ok(match mark {
            b'+' if line == b"OK" => Value::Ok,
            b'+' | b',' | b'(' => Value::Text(line.to_vec()),
            b'-' => Value::Error(String::from_utf8_lossy(line).into_owned()),
            b':' => Value::Int(integer(line)?),
            b'_' => Value::Nil,
            b'#' => Value::Int(i64::from(line == b"t")),
            b'$' => self.blob(line)?.map_or(Value::Nil, |text| Value::Text(text.to_vec())),
            // A verbatim string starts with three letters and a colon.
            b'=' => self
                .blob(line)?
                .map_or(Value::Nil, |text| Value::Text(text.get(4..).unwrap_or_default().to_vec())),
            b'!' => self
                .blob(line)?
                .map_or(Value::Nil, |text| Value::Error(String::from_utf8_lossy(text).into_owned())),
            b'*' | b'~' => self.list(line, 1, depth)?.map_or(Value::Nil, Value::List),
            b'%' => self.list(line, 2, depth)?.map_or(Value::Nil, Value::List),
            b'>' => self.list(line, 1, depth)?.map_or(Value::Nil, Value::Push),
            b'|' => {
                // Attributes say something about the value that follows; none matters here.
                self.list(line, 2, depth)?;
                self.value(depth)?
            }
            _ => return Err(Stop::Nonsense("a reply starts with an unknown mark")),
        })
    }

    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\r').ok_or(Stop::Incomplete)?;
        match rest.get(end + 1) {
            None => Err(Stop::Incomplete),
            Some(b'\n') => {
                self.at += end + 2;
                Ok(&rest[..end])
            }
            Some(_) => Err(Stop::Nonsense("a line of a reply does not end as it should")),
        }
    }

    fn blob(&mut self, line: &[u8]) -> Result<Option<&'a [u8]>, Stop> {
        let Some(length) = length(line, LONGEST_TEXT)? else { return Ok(None) };
        let rest = &self.bytes[self.at..];
        if rest.len() < length + 2 {
            return Err(Stop::Incomplete);
        }
        if &rest[length..length + 2] != b"\r\n" {
            return Err(Stop::Nonsense("a string of a reply does not end as it should"));
        }
        self.at += length + 2;
        Ok(Some(&rest[..length]))
    }

    fn list(&mut self, line: &[u8], each: usize, depth: usize) -> Result<Option<Vec<Value>>, Stop> {
        let Some(count) = length(line, MOST_ELEMENTS)? else { return Ok(None) };
        let mut items = Vec::with_capacity((count * each).min(64));
        for _ in 0..count * each {
            items.push(self.value(depth + 1)?);
        }
        Ok(Some(items))
    }
}

fn integer(line: &[u8]) -> Result<i64, Stop> {
    let text = std::str::from_utf8(line).ok();
    text.and_then(|text| text.parse().ok()).ok_or(Stop::Nonsense("a number of a reply is none"))
}

fn length(line: &[u8], most: usize) -> Result<Option<usize>, Stop> {
    match integer(line)? {
        -1 => Ok(None),
        number => match usize::try_from(number) {
            Ok(length) if length <= most => Ok(Some(length)),
            _ => Err(Stop::Nonsense("a length in a reply is out of bounds")),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse_all(bytes: &[u8], step: usize) -> Vec<Value> {
        let mut incoming = Incoming::new();
        let mut values = Vec::new();
        for chunk in bytes.chunks(step) {
            incoming.space()[..chunk.len()].copy_from_slice(chunk);
            incoming.filled(chunk.len());
            while let Some(value) = incoming.next().unwrap() {
                values.push(value);
            }
        }
        values
    }

    #[test]
    fn golden_commands() {
        let mut encoder = Encoder::default();
        encoder.command(3).word(b"SET").parts(&[b"a", b"", b"bc"]).number(30_000);
        assert_eq!(encoder.into_bytes(), b"*3\r\n$3\r\nSET\r\n$3\r\nabc\r\n$5\r\n30000\r\n");
        let mut space = [0; 20];
        assert_eq!(decimal(0, &mut space), b"0");
        assert_eq!(decimal(u64::MAX, &mut space), b"18446744073709551615");
    }

    #[test]
    fn values_are_the_same_however_the_bytes_were_cut() {
        let bytes = b"+OK\r\n$-1\r\n_\r\n:-7\r\n$4\r\na\r\nb\r\n*2\r\n:1\r\n*0\r\n-ERR no\r\n\
            >3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$0\r\n\r\n%1\r\n+a\r\n#t\r\n|1\r\n+x\r\n:9\r\n=7\r\ntxt:abc\r\n!5\r\nERR x\r\n";
        let text = |text: &str| Value::Text(text.as_bytes().to_vec());
        let expected = vec![
            Value::Ok,
            Value::Nil,
            Value::Nil,
            Value::Int(-7),
            text("a\r\nb"),
            Value::List(vec![Value::Int(1), Value::List(vec![])]),
            Value::Error("ERR no".into()),
            Value::Push(vec![text("message"), text("c"), text("")]),
            Value::List(vec![text("a"), Value::Int(1)]),
            text("abc"),
            Value::Error("ERR x".into()),
        ];
        for step in 1..bytes.len() {
            assert_eq!(parse_all(bytes, step), expected, "cut every {step}");
        }
    }

    #[test]
    fn a_large_answer_fits() {
        let mut bytes = format!("${}\r\n", 3 << 20).into_bytes();
        bytes.extend(std::iter::repeat_n(b'x', 3 << 20));
        bytes.extend(b"\r\n:1\r\n");
        let values = parse_all(&bytes, 9_000);
        assert_eq!(values[0].text().unwrap().len(), 3 << 20);
        assert_eq!(values[1], Value::Int(1));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut incoming = Incoming::new();
            incoming.space()[..bytes.len()].copy_from_slice(&bytes);
            incoming.filled(bytes.len());
            while let Ok(Some(_)) = incoming.next() {}
        }
    }
}
