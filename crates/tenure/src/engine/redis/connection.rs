//! A connection as the engine sees it: requests go in, answers come back in time or an error does.

use std::sync::{Arc, Weak};

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::lane::Shared;
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

/// The end where requests go in. The connection ends with the last of these.
#[derive(Clone, Debug)]
pub(super) struct Connection(Arc<End>);

/// One that does not keep the connection alive.
#[derive(Debug)]
pub(super) struct WeakConnection(Weak<End>);

#[derive(Debug)]
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Connection {
    pub(super) fn new(shared: Arc<Shared>) -> Connection {
        Connection(Arc::new(End(shared)))
    }

    pub(super) fn downgrade(&self) -> WeakConnection {
        WeakConnection(Arc::downgrade(&self.0))
    }

    /// The number that a grant's number must be above.
    pub(super) fn floor(&self) -> u64 {
        self.0.0.floor()
    }

    /// Sends a request whose answer nobody waits for.
    pub(super) fn send(&self, request: Request) -> Result<()> {
        self.0.0.send(request)
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
        self.0.upgrade().map(Connection)
    }
}

pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}
