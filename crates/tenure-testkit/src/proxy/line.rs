//! One connection through the proxy.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Direction, Message, Shared, State, Verdict};

/// How many messages may be under way in one direction; then the sender has to wait, as on a full
/// line.
const UNDER_WAY: usize = 4096;
/// How much is read at once.
const PIECE: usize = 64 * 1024;

/// How a direction ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// By one of the two sides, or by a broken line.
    Closed,
    /// By a verdict.
    Cut,
}

/// A message on its way, with the time before which it does not arrive.
type UnderWay = (Instant, Vec<u8>);

/// The requests that were not answered yet.
type Unanswered = Mutex<VecDeque<Vec<u8>>>;

/// Carries messages until one side closes or the connection is cut.
pub(super) async fn carry(client: TcpStream, number: u64, shared: &Shared) {
    let mut state = shared.state.subscribe();
    let connected = tokio::select! {
        server = TcpStream::connect(shared.upstream) => server,
        _ = state.wait_for(|state| number < state.cut_before) => return,
    };
    let Ok(server) = connected else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let unanswered = Unanswered::default();
    let requests = Way { direction: Direction::Request, number, shared, unanswered: &unanswered };
    let replies = Way { direction: Direction::Reply, ..requests };
    tokio::select! {
        () = requests.run(from_client, to_server) => {}
        () = replies.run(from_server, to_client) => {}
        _ = state.wait_for(|state| number < state.cut_before) => {}
    }
}

/// One direction of one connection.
#[derive(Clone, Copy)]
struct Way<'a> {
    direction: Direction,
    number: u64,
    shared: &'a Shared,
    unanswered: &'a Unanswered,
}

impl Way<'_> {
    /// Ends when the connection has to be closed.
    async fn run(self, from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let (send, receive) = mpsc::channel(UNDER_WAY);
        let (ended, ()) = tokio::join!(self.read(from, send), self.write(&mut to, receive));
        let silent = |state: &State| self.number < state.silent_before;
        if ended == End::Closed && silent(&self.shared.state.borrow()) {
            // Half-open: the other side is not told either, as it would be if `to` were dropped.
            std::future::pending::<()>().await;
        }
    }

    async fn read(self, mut from: OwnedReadHalf, send: mpsc::Sender<UnderWay>) -> End {
        let mut bytes = Vec::new();
        let mut piece = vec![0; PIECE];
        let mut index = 0;
        let mut muted = false;
        loop {
            let length = match from.read(&mut piece).await {
                Ok(length) if length > 0 => length,
                _ => return End::Closed,
            };
            if self.direction == Direction::Request {
                self.shared.reads.fetch_add(1, Ordering::SeqCst);
            }
            bytes.extend_from_slice(&piece[..length]);
            while let Some(length) = self.shared.protocol.first(&bytes) {
                let rest = bytes.split_off(length);
                let message = std::mem::replace(&mut bytes, rest);
                let verdict = self.judge(&message, index);
                index += 1;
                let delay = match verdict {
                    _ if muted => continue,
                    Verdict::Pass => Duration::ZERO,
                    Verdict::Delay(delay) => delay,
                    Verdict::Drop => continue,
                    Verdict::Mute => {
                        muted = true;
                        continue;
                    }
                    Verdict::Cut => return End::Cut,
                };
                let delay = delay + self.shared.state.borrow().delay[self.direction as usize];
                if send.send((Instant::now() + delay, message)).await.is_err() {
                    return End::Closed;
                }
            }
        }
    }

    /// Counts a message, finds the request it answers, and asks the rule.
    fn judge(self, bytes: &[u8], index: u64) -> Verdict {
        let protocol = &self.shared.protocol;
        let mut unanswered = self.unanswered.lock().unwrap_or_else(PoisonError::into_inner);
        let mut request = Vec::new();
        match self.direction {
            Direction::Request => {
                self.shared.requests.fetch_add(1, Ordering::SeqCst);
                for _ in 0..protocol.answers(bytes) {
                    unanswered.push_back(bytes.to_vec());
                }
            }
            Direction::Reply => {
                self.shared.replies.fetch_add(1, Ordering::SeqCst);
                if !protocol.is_push(bytes) {
                    request = unanswered.pop_front().unwrap_or_default();
                }
            }
        }
        drop(unanswered);
        let (direction, connection) = (self.direction, self.number);
        self.shared.verdict(&Message { direction, connection, index, bytes, request: &request })
    }

    async fn write(self, to: &mut OwnedWriteHalf, mut receive: mpsc::Receiver<UnderWay>) {
        let mut state = self.shared.state.subscribe();
        while let Some((due, message)) = receive.recv().await {
            tokio::time::sleep_until(due).await;
            let free = |state: &State| !state.held[self.direction as usize];
            if state.wait_for(free).await.is_err() {
                return;
            }
            if self.number < state.borrow().silent_before {
                continue;
            }
            if to.write_all(&message).await.is_err() {
                // The reader of the other direction notices that this side is gone.
                return;
            }
        }
    }
}
