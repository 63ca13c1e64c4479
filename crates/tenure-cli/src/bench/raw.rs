//! The raw limits of a Redis server: one thread, one blocking connection, requests sent by hand.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::tap::Bytes;
use super::target::Server;
use super::{Result, Stop};

const COMPARE_AND_DELETE: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) else return 0 end";
const PATIENCE: Duration = Duration::from_secs(5);

/// A blocking connection that sends bytes and counts replies.
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    filled: usize,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Connection { stream, buffer: vec![0; 1 << 16], filled: 0 })
    }

    /// Sends one request and reads its reply.
    pub(super) fn ask(&mut self, words: &[&str]) -> Result<&[u8]> {
        self.flight(&request(words), 1)
    }

    /// Sends requests in one write and reads as many replies. Returns the last bytes read.
    pub(super) fn flight(&mut self, requests: &[u8], replies: usize) -> Result<&[u8]> {
        self.stream.write_all(requests)?;
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
                    return Err(refused(&self.buffer[parsed + 1..parsed + length]));
                }
                parsed += length;
                seen += 1;
            }
        }
        Ok(&self.buffer[..self.filled])
    }

    /// Loads the script that releases a lock the usual way; its hash.
    pub(super) fn load_release(&mut self) -> Result<String> {
        let loaded = self.ask(&["SCRIPT", "LOAD", COMPARE_AND_DELETE])?;
        let hash = bulk_strings(loaded).pop();
        Ok(hash.ok_or("SCRIPT LOAD was answered without a hash")?)
    }

    /// The same connection for a tokio runtime.
    pub(super) fn into_tokio(self) -> Result<AsyncConnection> {
        self.stream.set_nonblocking(true)?;
        Ok(AsyncConnection(tokio::net::TcpStream::from_std(self.stream)?))
    }
}

/// One request at a time, with an answer of a few bytes.
pub(super) struct AsyncConnection(tokio::net::TcpStream);

impl AsyncConnection {
    pub(super) async fn ask(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        self.0.write_all(request).await?;
        self.hear().await
    }

    /// What comes next. A reply of a few bytes comes as a whole.
    pub(super) async fn hear(&mut self) -> Result<Vec<u8>> {
        let mut buffer = [0; 256];
        let read = self.0.read(&mut buffer).await?;
        match buffer[..read].first() {
            None => Err("the server closed the connection".into()),
            Some(b'-') => Err(refused(&buffer[1..read])),
            Some(_) => Ok(buffer[..read].to_vec()),
        }
    }
}

fn refused(words: &[u8]) -> Box<dyn std::error::Error + Send + Sync> {
    format!("the server refused a raw request: {}", String::from_utf8_lossy(words).trim()).into()
}

/// The length of the reply at the beginning of `bytes`, if it is there as a whole.
fn reply_length(bytes: &[u8]) -> Option<usize> {
    let line = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let number = || std::str::from_utf8(bytes.get(1..line.checked_sub(2)?)?).ok()?.parse::<i64>().ok();
    let mut length = line;
    match bytes[0] {
        b'$' | b'=' => {
            if let Ok(body) = usize::try_from(number()?) {
                length += body + 2;
            }
        }
        b'*' | b'>' | b'~' | b'%' => {
            let items = number()?.max(0) * if bytes[0] == b'%' { 2 } else { 1 };
            for _ in 0..items {
                length += reply_length(bytes.get(length..)?)?;
            }
        }
        _ => {}
    }
    (length <= bytes.len()).then_some(length)
}

/// All strings of a reply, however nested.
pub(super) fn bulk_strings(mut bytes: &[u8]) -> Vec<String> {
    let mut strings = Vec::new();
    while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
        let line = &bytes[..end];
        bytes = &bytes[end + 1..];
        if line.first() != Some(&b'$') {
            continue;
        }
        let length = std::str::from_utf8(&line[1..]).ok().and_then(|text| text.trim().parse::<usize>().ok());
        if let Some(body) = length.and_then(|length| bytes.get(..length)) {
            strings.push(String::from_utf8_lossy(body).into_owned());
            bytes = &bytes[(body.len() + 2).min(bytes.len())..];
        }
    }
    strings
}

pub(super) fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

/// Pairs per second of `SET NX PX` and compare-and-delete, without a token.
pub(super) fn plain(server: &Server, depth: usize, span: Duration, stop: &Stop) -> Result<f64> {
    let mut connection = server.open()?;
    let hash = connection.load_release()?;
    let (mut claims, mut releases) = (Vec::new(), Vec::new());
    for n in 0..depth {
        let (key, value) = (format!("{}plain:{n}", server.prefix), format!("{n:032x}"));
        claims.extend(request(&["SET", &key, &value, "NX", "PX", "30000"]));
        releases.extend(request(&["EVALSHA", &hash, "1", &key, &value]));
    }
    repeat(span, depth, stop, || {
        connection.flight(&claims, depth)?;
        connection.flight(&releases, depth)?;
        Ok(())
    })
}

/// Pairs per second of the bytes that the engine sends.
pub(super) fn replay(server: &Server, bytes: &Bytes, span: Duration, stop: &Stop) -> Result<f64> {
    let mut connection = server.open()?;
    connection.ask(&["HELLO", "3"])?;
    repeat(span, bytes.pairs, stop, || {
        connection.flight(&bytes.claims, bytes.claim_commands)?;
        connection.flight(&bytes.releases, bytes.release_commands)?;
        Ok(())
    })
}

fn repeat(span: Duration, pairs: usize, stop: &Stop, mut flight: impl FnMut() -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    let mut done = 0;
    while began.elapsed() < span && !stop.is_set() {
        flight()?;
        done += pairs;
    }
    Ok(done as f64 / began.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_measured_and_their_strings_read() {
        let reply = b"*2\r\n$1\r\n0\r\n*2\r\n$3\r\na\r\n\r\n$2\r\nbb\r\n";
        assert_eq!(bulk_strings(reply), ["0", "a\r\n", "bb"]);
        for end in 0..reply.len() {
            assert_eq!(reply_length(&reply[..end]), None, "{end}");
        }
        assert_eq!(reply_length(reply), Some(reply.len()));
        assert_eq!(reply_length(b"$-1\r\n+OK\r\n"), Some(5));
        assert_eq!(reply_length(b"%1\r\n+a\r\n:1\r\n"), Some(12));
    }
}
