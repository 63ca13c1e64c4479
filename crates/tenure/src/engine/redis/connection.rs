//! A connection as the engine sees it: requests go in, answers come back in time or an error does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::scripts::Script;
use super::wire::Value;
use crate::error::{Error, ErrorKind, Result};

/// Requests that one connection keeps at most, written or not (R14).
pub(super) const MOST_OUTSTANDING: usize = 65_536;

/// Commands that travel together and are answered together.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) bytes: Vec<u8>,
    /// How many replies belong to it.
    pub(super) replies: usize,
    /// The script that it calls by hash, as its only command.
    pub(super) script: Option<&'static Script>,
    /// Whether it is to be carried out even if nobody waits for its answer.
    pub(super) must: bool,
    pub(super) answer: Option<oneshot::Sender<Result<Vec<Value>>>>,
    /// When the caller is told that it took too long. Set when the connection takes it in.
    pub(super) deadline: Option<Instant>,
}

impl Request {
    /// Plain commands.
    pub(super) fn plain(bytes: Vec<u8>, replies: usize) -> Request {
        Request { bytes, replies, script: None, must: false, answer: None, deadline: None }
    }

    /// One call of a script by hash.
    pub(super) fn script(script: &'static Script, bytes: Vec<u8>) -> Request {
        Request { script: Some(script), ..Request::plain(bytes, 1) }
    }
}

/// What both ends know.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) outstanding: AtomicUsize,
    /// The counter of tokens when the connection was made.
    pub(super) floor: AtomicU64,
}

/// The end where requests go in. The connection ends with the last of these.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    requests: mpsc::UnboundedSender<Request>,
    shared: Arc<Shared>,
}

/// One that does not keep the connection alive.
#[derive(Debug)]
pub(super) struct WeakConnection {
    requests: mpsc::WeakUnboundedSender<Request>,
    shared: Arc<Shared>,
}

impl Connection {
    pub(super) fn new() -> (Connection, mpsc::UnboundedReceiver<Request>, Arc<Shared>) {
        let (requests, receiver) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared::default());
        (Connection { requests, shared: shared.clone() }, receiver, shared)
    }

    pub(super) fn downgrade(&self) -> WeakConnection {
        WeakConnection { requests: self.requests.downgrade(), shared: self.shared.clone() }
    }

    /// The number that a grant's number must be above.
    pub(super) fn floor(&self) -> u64 {
        self.shared.floor.load(Ordering::Acquire)
    }

    /// Sends a request whose answer nobody waits for.
    pub(super) fn send(&self, request: Request) -> Result<()> {
        if self.shared.outstanding.fetch_add(1, Ordering::Relaxed) >= MOST_OUTSTANDING {
            self.shared.outstanding.fetch_sub(1, Ordering::Relaxed);
            let what = format!("{MOST_OUTSTANDING} requests are outstanding on the connection");
            return Err(Error::new(ErrorKind::Full, what));
        }
        self.requests.send(request).map_err(|_| closed())
    }

    /// Hands a request over at once; the returned future only waits for the answer.
    pub(super) fn ask(
        &self,
        mut request: Request,
    ) -> impl Future<Output = Result<Vec<Value>>> + Send + use<> {
        let (answer, answered) = oneshot::channel();
        request.answer = Some(answer);
        let sent = self.send(request);
        async move {
            sent?;
            answered.await.unwrap_or_else(|_| Err(closed().maybe()))
        }
    }

    /// Asks what has one answer.
    pub(super) async fn ask_one(&self, request: Request) -> Result<Value> {
        Ok(self.ask(request).await?.pop().unwrap_or(Value::Nil))
    }
}

impl WeakConnection {
    pub(super) fn upgrade(&self) -> Option<Connection> {
        self.requests.upgrade().map(|requests| Connection { requests, shared: self.shared.clone() })
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}
