//! Records the very bytes that the engine sends for a flight of claims and a flight of releases.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::Result;

/// What was recorded.
pub(crate) struct Bytes {
    pub(crate) claims: Vec<u8>,
    pub(crate) claim_commands: usize,
    pub(crate) releases: Vec<u8>,
    pub(crate) release_commands: usize,
    pub(crate) pairs: usize,
}

/// Everything that clients sent, connection by connection.
type Tape = Arc<Mutex<Vec<Vec<u8>>>>;

pub(crate) async fn record(server: SocketAddr, pairs: usize) -> Result<Bytes> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let tape = Tape::default();
    let tap = tokio::spawn(forward_all(listener, server, tape.clone()));
    let tenure = tenure::connect(format!("redis://{address}")).await?;
    // The first pair uploads the script, so that the recorded ones call it by its hash.
    tenure.mutex("bench:warm").acquire().await?.release().await?;

    let before = lengths(&tape);
    let mut leases = Vec::new();
    for n in 0..pairs {
        leases.push(tenure.mutex(format!("bench:{n}")).acquire().await?);
    }
    let held = lengths(&tape);
    for lease in leases {
        lease.release().await?;
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    let claims = between(&tape, &before, Some(&held));
    let releases = between(&tape, &held, None);
    tenure.close().await?;
    tap.abort();
    Ok(Bytes {
        claim_commands: commands(&claims),
        claims,
        release_commands: commands(&releases),
        releases,
        pairs,
    })
}

fn lengths(tape: &Tape) -> Vec<usize> {
    tape.lock().unwrap_or_else(|broken| broken.into_inner()).iter().map(Vec::len).collect()
}

/// What was sent after `from` and before `to`, on all connections.
fn between(tape: &Tape, from: &[usize], to: Option<&[usize]>) -> Vec<u8> {
    let tape = tape.lock().unwrap_or_else(|broken| broken.into_inner());
    let mut bytes = Vec::new();
    for (n, sent) in tape.iter().enumerate() {
        let begin = from.get(n).copied().unwrap_or(0);
        let end = to.map_or(sent.len(), |to| to.get(n).copied().unwrap_or(0));
        bytes.extend_from_slice(&sent[begin..end]);
    }
    bytes
}

/// How many commands these bytes are: each is an array.
fn commands(mut bytes: &[u8]) -> usize {
    let mut commands = 0;
    while let Some(rest) = bytes.strip_prefix(b"*") {
        let (words, mut rest) = number(rest);
        for _ in 0..words {
            let (length, body) = number(&rest[1..]);
            rest = &body[length + 2..];
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
    while let Ok((client, _)) = listener.accept().await {
        let Ok(upstream) = TcpStream::connect(server).await else { return };
        let index = {
            let mut tape = tape.lock().unwrap_or_else(|broken| broken.into_inner());
            tape.push(Vec::new());
            tape.len() - 1
        };
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = upstream.into_split();
        tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
        let tape = tape.clone();
        tokio::spawn(async move {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
                tape.lock().unwrap_or_else(|broken| broken.into_inner())[index]
                    .extend_from_slice(&buffer[..read]);
                if to_server.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
            }
        });
    }
}
