//! The raw limits: one thread, one blocking connection, requests sent by hand.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::Result;
use crate::tap::Bytes;

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end";

/// A blocking connection that sends bytes and counts replies.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Connection { stream, buffer: vec![0; 1 << 16], filled: 0 })
    }

    /// Sends requests in one write and reads as many replies. Returns the last bytes read.
    pub(crate) fn flight(&mut self, requests: &[u8], replies: usize) -> Result<&[u8]> {
        self.stream.write_all(requests)?;
        self.await_replies(replies)
    }

    pub(crate) fn await_replies(&mut self, replies: usize) -> Result<&[u8]> {
        self.filled = 0;
        let (mut seen, mut parsed) = (0, 0);
        while seen < replies {
            if self.filled == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            let read = self.stream.read(&mut self.buffer[self.filled..])?;
            if read == 0 {
                return Err("the server closed the connection".into());
            }
            self.filled += read;
            while seen < replies {
                let Some(length) = reply_length(&self.buffer[parsed..self.filled]) else { break };
                if self.buffer[parsed] == b'-' {
                    return Err(String::from_utf8_lossy(&self.buffer[parsed..parsed + length]).into());
                }
                parsed += length;
                seen += 1;
            }
        }
        Ok(&self.buffer[..self.filled])
    }
}

/// The length of the reply at the beginning of `bytes`, if it is there as a whole.
fn reply_length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let number = || std::str::from_utf8(&bytes[1..line - 2]).ok()?.parse::<i64>().ok();
    let mut length = line;
    match bytes[0] {
        b'$' => {
            if let Ok(body) = usize::try_from(number()?) {
                length += body + 2;
            }
        }
        b'*' | b'>' | b'%' => {
            let items = number()?.max(0) * if bytes[0] == b'%' { 2 } else { 1 };
            for _ in 0..items {
                length += reply_length(bytes.get(length..)?)?;
            }
        }
        _ => {}
    }
    (length <= bytes.len()).then_some(length)
}

pub(crate) fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

/// Pairs per second of `SET NX PX` and compare-and-delete, without a token.
pub(crate) fn plain(address: SocketAddr, depth: usize, span: Duration) -> Result<f64> {
    let mut connection = Connection::open(address)?;
    let loaded = connection.flight(&request(&["SCRIPT", "LOAD", COMPARE_AND_DELETE]), 1)?;
    let sha = String::from_utf8_lossy(&loaded[5..45]).into_owned();
    let (mut claims, mut releases) = (Vec::new(), Vec::new());
    for n in 0..depth {
        let (key, value) = (format!("bench:plain:{n}"), format!("{n:032x}"));
        claims.extend(request(&["SET", &key, &value, "NX", "PX", "30000"]));
        releases.extend(request(&["EVALSHA", &sha, "1", &key, &value]));
    }
    let began = Instant::now();
    let mut pairs = 0;
    while began.elapsed() < span {
        connection.flight(&claims, depth)?;
        connection.flight(&releases, depth)?;
        pairs += depth;
    }
    Ok(pairs as f64 / began.elapsed().as_secs_f64())
}

/// Pairs per second of the bytes that the engine sends.
pub(crate) fn replay(address: SocketAddr, bytes: &Bytes, span: Duration) -> Result<f64> {
    let mut connection = Connection::open(address)?;
    connection.flight(&request(&["HELLO", "3"]), 1)?;
    let began = Instant::now();
    let mut pairs = 0;
    while began.elapsed() < span {
        connection.flight(&bytes.claims, bytes.claim_commands)?;
        connection.flight(&bytes.releases, bytes.release_commands)?;
        pairs += bytes.pairs;
    }
    Ok(pairs as f64 / began.elapsed().as_secs_f64())
}
