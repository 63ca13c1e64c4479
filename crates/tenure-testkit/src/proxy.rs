//! A line between client and server that tests can cut, delay, hold and mute.
//!
//! The proxy knows nothing of a store but where a message ends ([`Protocol`]); what is done to a
//! message is decided by a closure that sees its bytes. It runs on a thread of its own, so that a
//! test which blocks does not stop the line.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};

mod line;
mod protocol;

pub use protocol::{Opaque, Protocol, Resp};

/// Which way a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Request,
    /// From the server to the client.
    Reply,
}

/// A message that passes.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    /// Which way it goes.
    pub direction: Direction,
    /// Which connection it is on, counted from 0 over the proxy's life.
    pub connection: u64,
    /// How many went this way on this connection before it.
    pub index: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Of a reply: the request it answers. Empty for a message that answers none.
    pub request: &'a [u8],
}

impl Message<'_> {
    /// Whether the message holds this text, in any case.
    #[must_use]
    pub fn holds(&self, text: &str) -> bool {
        holds(self.bytes, text)
    }

    /// Whether it is the answer to a request that holds this text, in any case.
    #[must_use]
    pub fn answers(&self, text: &str) -> bool {
        self.direction == Direction::Reply && holds(self.request, text)
    }

    /// Whether it is a message from the server that answers no request.
    #[must_use]
    pub fn is_push(&self) -> bool {
        self.direction == Direction::Reply && self.request.is_empty()
    }
}

fn holds(bytes: &[u8], text: &str) -> bool {
    !text.is_empty() && bytes.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text.as_bytes()))
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes.
    Pass,
    /// It and everything behind it comes so much later.
    Delay(Duration),
    /// It alone is dropped. Only for messages that answer nothing: TCP loses none in the middle.
    Drop,
    /// It and everything behind it in its direction is dropped; the connection stays open.
    Mute,
    /// The connection is cut before it is delivered.
    Cut,
}

type Rule = Box<dyn FnMut(&Message<'_>) -> Verdict + Send>;

/// What all connections share.
struct Shared {
    upstream: SocketAddr,
    protocol: Box<dyn Protocol>,
    rule: Mutex<Option<Rule>>,
    state: watch::Sender<State>,
    refuse: AtomicBool,
    requests: AtomicU64,
    replies: AtomicU64,
    reads: AtomicU64,
    connections: AtomicU64,
    open: AtomicU64,
}

/// What the lines obey.
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Connections older than this are cut.
    cut_before: u64,
    /// Connections older than this are silent: nothing passes and nothing is closed.
    silent_before: u64,
    delay: [Duration; 2],
    held: [bool; 2],
}

/// A running proxy. It ends, and its connections with it, when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Proxy({} -> {})", self.address, self.shared.upstream)
    }
}

impl Proxy {
    /// Starts a proxy in front of a server, on a free loopback port.
    ///
    /// # Errors
    /// If no port or thread is to be had.
    pub fn start(upstream: SocketAddr, protocol: impl Protocol) -> io::Result<Proxy> {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream,
            protocol: Box::new(protocol),
            rule: Mutex::new(None),
            state: watch::Sender::default(),
            refuse: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            replies: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            open: AtomicU64::new(0),
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, for_thread) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Proxy { address, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many requests came from clients.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// How many replies and pushed messages came from the server.
    #[must_use]
    pub fn replies(&self) -> u64 {
        self.shared.replies.load(Ordering::SeqCst)
    }

    /// How many pieces the requests came in: fewer than requests if they travelled together.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.shared.reads.load(Ordering::SeqCst)
    }

    /// How many connections were made so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many connections are open now.
    #[must_use]
    pub fn open(&self) -> u64 {
        self.shared.open.load(Ordering::SeqCst)
    }

    /// Cuts all connections there are.
    pub fn cut(&self) {
        let made = self.connections();
        self.change(|state| state.cut_before = made);
    }

    /// Whether new connections are closed at once.
    pub fn refuse(&self, refuse: bool) {
        self.shared.refuse.store(refuse, Ordering::SeqCst);
    }

    /// Makes all connections there are half-open: nothing passes any more, nothing is closed. New
    /// ones work.
    pub fn half_open(&self) {
        let made = self.connections();
        self.change(|state| state.silent_before = made);
    }

    /// Lets every message of a direction arrive so much later.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.change(|state| state.delay[direction as usize] = delay);
    }

    /// Freezes a direction on all connections, or lets it go on with all that was held.
    pub fn hold(&self, direction: Direction, held: bool) {
        self.change(|state| state.held[direction as usize] = held);
    }

    /// Decides by a closure what becomes of each message from now on.
    pub fn rule(&self, rule: impl FnMut(&Message<'_>) -> Verdict + Send + 'static) {
        *self.shared.lock_rule() = Some(Box::new(rule));
    }

    /// Takes the rule away.
    pub fn clear_rule(&self) {
        *self.shared.lock_rule() = None;
    }

    /// Everything works again: no rule, no delay, nothing held, nothing refused. What was muted or
    /// made half-open stays so until it is cut.
    pub fn heal(&self) {
        self.clear_rule();
        self.refuse(false);
        self.change(|state| {
            state.delay = Default::default();
            state.held = Default::default();
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        self.shared.state.send_modify(change);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It panics only if it panicked before; then the test has failed already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock_rule(&self) -> MutexGuard<'_, Option<Rule>> {
        self.rule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn verdict(&self, message: &Message<'_>) -> Verdict {
        self.lock_rule().as_mut().map_or(Verdict::Pass, |rule| rule(message))
    }
}

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    loop {
        let Ok((client, _)) = listener.accept().await else {
            // No descriptor is free; asking again at once would spin.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        if shared.refuse.load(Ordering::SeqCst) {
            continue;
        }
        let number = shared.connections.fetch_add(1, Ordering::SeqCst);
        shared.open.fetch_add(1, Ordering::SeqCst);
        let shared = shared.clone();
        tokio::spawn(async move {
            line::carry(client, number, &shared).await;
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}
