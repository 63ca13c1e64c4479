//! Records the very bytes that the engine sends for a flight of claims and a flight of releases.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::target::Server;
use super::{Place, Result};

/// What was recorded.
#[derive(Clone)]
pub(super) struct Bytes {
    pub(super) claims: Vec<u8>,
    pub(super) claim_commands: usize,
    pub(super) releases: Vec<u8>,
    pub(super) release_commands: usize,
    pub(super) pairs: usize,
}

/// Everything that clients sent, connection by connection.
#[derive(Clone, Default)]
struct Tape(Arc<Mutex<Vec<Vec<u8>>>>);

impl Tape {
    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lengths(&self) -> Vec<usize> {
        self.lock().iter().map(Vec::len).collect()
    }

    /// What was sent after `from` and before `to`, on all connections.
    fn between(&self, from: &[usize], to: Option<&[usize]>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (n, sent) in self.lock().iter().enumerate() {
            let begin = from.get(n).copied().unwrap_or(0);
            let end = to.map_or(sent.len(), |to| to.get(n).copied().unwrap_or(0));
            bytes.extend_from_slice(&sent[begin..end]);
        }
        bytes
    }
}

/// Has the engine make so many pairs by way of a recorder.
pub(super) async fn record(server: &Server, pairs: usize) -> Result<Bytes> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let target = server.by_way_of(listener.local_addr()?)?;
    let tape = Tape::default();
    // Aborted when this ends, whichever way.
    let mut tap = JoinSet::new();
    tap.spawn(forward_all(listener, server.address(), tape.clone()));
    let tenure = target.connect(Place::Own).await?;
    // The first pair uploads the script, so that the recorded ones call it by its hash.
    tenure.mutex(target.key("warm")).acquire().await?.release().await?;

    let before = tape.lengths();
    let mut leases = Vec::new();
    for n in 0..pairs {
        leases.push(tenure.mutex(target.key(&format!("replay:{n}"))).acquire().await?);
    }
    let held = tape.lengths();
    for lease in leases {
        lease.release().await?;
    }
    let claims = tape.between(&before, Some(&held));
    let releases = tape.between(&held, None);
    tenure.close().await?;
    Ok(Bytes {
        claim_commands: commands(&claims),
        claims,
        release_commands: commands(&releases),
        releases,
        pairs,
    })
}

/// How many commands these bytes are: each is an array.
fn commands(mut bytes: &[u8]) -> usize {
    let mut commands = 0;
    while let Some(rest) = bytes.strip_prefix(b"*") {
        let (words, mut rest) = number(rest);
        for _ in 0..words {
            let (length, body) = number(rest.get(1..).unwrap_or_default());
            rest = body.get(length + 2..).unwrap_or_default();
        }
        bytes = rest;
        commands += 1;
    }
    commands
}

/// A number up to the end of its line, and what follows.
fn number(bytes: &[u8]) -> (usize, &[u8]) {
    let end = bytes.iter().position(|byte| *byte == b'\r').unwrap_or(bytes.len());
    let digits = std::str::from_utf8(&bytes[..end]).unwrap_or_default();
    (digits.parse().unwrap_or(0), &bytes[(end + 2).min(bytes.len())..])
}

async fn forward_all(listener: TcpListener, server: SocketAddr, tape: Tape) {
    let mut lines = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let Ok(upstream) = TcpStream::connect(server).await else { return };
        let index = {
            let mut tape = tape.lock();
            tape.push(Vec::new());
            tape.len() - 1
        };
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = upstream.into_split();
        lines.spawn(async move {
            let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
        });
        let tape = tape.clone();
        lines.spawn(async move {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
                tape.lock()[index].extend_from_slice(&buffer[..read]);
                if to_server.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::raw::request;
    use super::*;

    #[test]
    fn commands_are_counted() {
        let bytes = [request(&["SET", "a", "*1\r\n$1"]), request(&["GET", "a"])].concat();
        assert_eq!(commands(&bytes), 2);
        assert_eq!(commands(b""), 0);
    }
}
