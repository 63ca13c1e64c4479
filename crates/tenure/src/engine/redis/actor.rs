//! The task behind a connection: full duplex, answers in order, a new line when one breaks.
//!
//! It waits one `yield_now()` before it writes, so that all tasks that are ready have asked; that
//! makes the flights. What need not wait is written by who asks: see `lane.rs`.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::connection::Request;
use super::lane::{Shared, Told};
use super::link::{Established, Link, establish};
use super::options::Options;
use super::pushes::Pushes;
use super::wire::{Encoder, Value};
use crate::error::{Error, ErrorKind, Result};

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long a line may be silent while somebody waits for a message on it.
const SILENCE: Duration = Duration::from_secs(1);

/// Who listens on a connection.
#[derive(Clone)]
pub(super) struct Subscriber {
    pub(super) channel: Vec<u8>,
    pub(super) pushes: Arc<Pushes>,
}

pub(super) struct Actor {
    shared: Arc<Shared>,
    options: Arc<Options>,
    subscriber: Option<Subscriber>,
    /// Whether all that waits may be written now: whoever was ready has asked.
    write_all: bool,
    replies: Vec<Value>,
    told: Vec<Told>,
    heard: Instant,
    tick: Pin<Box<Sleep>>,
    /// Why the last attempt to connect failed.
    trouble: Option<Error>,
}

enum Event {
    Asked,
    Heard,
    Tick,
    Closed,
    Broken(Error),
}

enum End {
    Closed,
    Broken(Error),
}

impl Actor {
    /// Call it on the runtime where it is to run.
    pub(super) fn new(shared: Arc<Shared>, options: Arc<Options>, subscriber: Option<Subscriber>) -> Actor {
        Actor {
            shared,
            options,
            subscriber,
            write_all: false,
            replies: Vec::new(),
            told: Vec::new(),
            heard: Instant::now(),
            tick: Box::pin(tokio::time::sleep(Duration::ZERO)),
            trouble: None,
        }
    }

    /// Runs until all handles are gone and what they asked is done.
    pub(super) async fn run(mut self, first: Established) {
        let mut next = Some(first);
        while let Some(established) = next {
            match self.serve(established).await {
                End::Closed => return,
                End::Broken(error) => {
                    tracing::debug!(%error, "a connection to redis broke");
                    let cut = self.shared.lock().line_broke(&error);
                    tell(cut);
                    self.trouble = Some(error);
                }
            }
            next = self.reconnect().await;
            if next.is_some() {
                tracing::debug!("a connection to redis was made again");
            }
        }
    }

    async fn serve(&mut self, established: Established) -> End {
        let Established { mut link, writer, floor, early } = established;
        self.shared.set_floor(floor);
        self.trouble = None;
        self.heard = Instant::now();
        early.into_iter().for_each(|push| self.deliver(push));
        self.shared.lock().begin(writer);
        self.write_all = true;
        loop {
            match poll_fn(|cx| self.poll_event(&mut link, cx)).await {
                Event::Asked => {}
                Event::Heard => {
                    if let Err(error) = self.read(&mut link) {
                        return End::Broken(error);
                    }
                }
                Event::Tick => {
                    if let Err(error) = self.check_limits() {
                        return End::Broken(error);
                    }
                    continue;
                }
                Event::Closed => return End::Closed,
                Event::Broken(error) => return End::Broken(error),
            }
            // Whoever is ready, or was just answered, asks before the next write.
            tokio::task::yield_now().await;
            self.write_all = true;
        }
    }

    fn poll_event(&mut self, link: &mut Link, cx: &mut Context<'_>) -> Poll<Event> {
        let mut lane = loop {
            if let Err(error) = self.shared.poll_write(self.write_all, cx) {
                return Poll::Ready(Event::Broken(cut(error)));
            }
            let mut lane = self.shared.lock();
            // A caller may have left something to us just before this: nobody was asleep to be woken.
            if !std::mem::take(&mut lane.wanted) {
                break lane;
            }
        };
        self.write_all &= lane.waits();
        if lane.closed && lane.is_empty() {
            return Poll::Ready(Event::Closed);
        }
        let asked = lane.waits() && !self.write_all;
        lane.ticks = !lane.is_empty() || self.mailboxes() > 0;
        let ticks = lane.ticks;
        lane.sleep(cx);
        drop(lane);
        match link.poll_read(cx) {
            Poll::Ready(Ok(0)) => {
                return Poll::Ready(Event::Broken(cut(std::io::ErrorKind::UnexpectedEof.into())));
            }
            Poll::Ready(Ok(_)) => return Poll::Ready(Event::Heard),
            Poll::Ready(Err(error)) => return Poll::Ready(Event::Broken(cut(error))),
            Poll::Pending => {}
        }
        if asked {
            return Poll::Ready(Event::Asked);
        }
        if ticks && self.tick.as_mut().poll(cx).is_ready() {
            self.restart_tick();
            return Poll::Ready(Event::Tick);
        }
        Poll::Pending
    }

    fn restart_tick(&mut self) {
        let span = (self.options.limit / 32).clamp(Duration::from_millis(2), Duration::from_millis(100));
        self.tick.as_mut().reset(Instant::now() + span);
    }

    fn mailboxes(&self) -> usize {
        self.subscriber.as_ref().map_or(0, |subscriber| subscriber.pushes.count())
    }

    fn read(&mut self, link: &mut Link) -> Result<()> {
        self.heard = Instant::now();
        loop {
            match link.incoming.next() {
                Ok(None) => return self.complete(),
                Ok(Some(push @ Value::Push(_))) => {
                    // In the server's order.
                    self.complete()?;
                    self.deliver(push);
                }
                Ok(Some(reply)) => self.replies.push(reply),
                Err(nonsense) => {
                    // What came before it is sound, and must not be taken for answers on the next line.
                    self.complete()?;
                    return Err(Error::new(ErrorKind::Internal, nonsense.0));
                }
            }
        }
    }

    fn deliver(&self, push: Value) {
        let (Some(subscriber), Value::Push(items)) = (&self.subscriber, push) else { return };
        if let [kind, channel, payload] = &items[..]
            && kind.text() == Some(b"message")
            && channel.text() == Some(&subscriber.channel)
        {
            subscriber.pushes.deliver(payload.text().unwrap_or_default(), self.shared.floor());
        }
    }

    /// Gives the replies that were read to those who asked.
    fn complete(&mut self) -> Result<()> {
        let mut sound = Ok(());
        let mut lane = self.shared.lock();
        for reply in self.replies.drain(..) {
            match lane.complete(reply, self.heard) {
                Ok(told) => self.told.extend(told),
                Err(error) => sound = Err(error),
            }
        }
        drop(lane);
        tell(self.told.drain(..));
        sound
    }

    /// Tells those whose time is up; an error if the line is to be given up.
    fn check_limits(&mut self) -> Result<()> {
        let now = Instant::now();
        let mut lane = self.shared.lock();
        let (late, line) = lane.check_limits(now);
        let silent = !lane.flies() && self.mailboxes() > 0 && now.duration_since(self.heard) >= SILENCE;
        if line.is_ok() && silent {
            let mut ping = Encoder::default();
            ping.command(1).word(b"PING");
            let mut ping = Request::plain(ping.into_bytes(), 1);
            // A check of the line, and no question: a silent one is not waited for as long.
            ping.deadline = Some(now + self.options.limit / 4);
            // A line that is full of requests is not silent for long.
            let _ = lane.take_in(ping);
        }
        drop(lane);
        tell(late);
        line
    }

    /// Makes a new line once one is needed; `None` when none will be any more.
    async fn reconnect(&mut self) -> Option<Established> {
        let mut pause = FIRST_PAUSE;
        // A dead path is given up early, and another tried; a distant server gets the time it takes.
        let mut within = self.options.limit;
        loop {
            if self.until_needed().await? {
                pause = FIRST_PAUSE;
            }
            match self.attempt(within).await {
                Ok(established) => {
                    if let Some(subscriber) = &self.subscriber {
                        subscriber.pushes.ask_all();
                    }
                    return Some(established);
                }
                Err(error) if error.kind() == ErrorKind::Unavailable => {
                    self.trouble = Some(error);
                    within = (within * 2).min(self.options.connect_limit);
                }
                // A wrong password does not become right by waiting.
                Err(error) => {
                    let refused = self.shared.lock().refuse_waiting(&error);
                    tell(refused);
                }
            }
            let over = Instant::now() + pause;
            while Instant::now() < over {
                tokio::select! {
                    () = tokio::time::sleep_until(over) => {}
                    () = self.meanwhile() => {}
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits until somebody needs a line: whether that took time. `None`: nobody will.
    async fn until_needed(&self) -> Option<bool> {
        let mut slept = false;
        poll_fn(|cx| {
            let mut lane = self.shared.lock();
            // With a line gone, what flies is none.
            match lane.waits() || (!lane.closed && self.mailboxes() > 0) {
                true => Poll::Ready(Some(slept)),
                false if lane.closed => Poll::Ready(None),
                false => {
                    slept = true;
                    lane.ticks = false;
                    lane.sleep(cx);
                    Poll::Pending
                }
            }
        })
        .await
    }

    async fn attempt(&mut self, within: Duration) -> Result<Established> {
        let options = self.options.clone();
        let channel = self.subscriber.as_ref().map(|subscriber| subscriber.channel.clone());
        let mut connecting = std::pin::pin!(establish(&options, channel.as_deref(), within));
        loop {
            tokio::select! {
                biased;
                result = &mut connecting => return result,
                () = self.meanwhile() => {}
            }
        }
    }

    /// Tells those whose time is up, while there is no line.
    async fn meanwhile(&mut self) {
        self.tick.as_mut().await;
        self.restart_tick();
        let late = self.shared.lock().expire_waiting(Instant::now(), self.trouble.as_ref());
        tell(late);
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let left = self.shared.lock().end();
        drop(left);
    }
}

/// Whoever does not wait any more has no use for an answer.
fn tell(told: impl IntoIterator<Item = Told>) {
    for (answer, result) in told {
        let _ = answer.send(result);
    }
}

fn cut(error: std::io::Error) -> Error {
    let what = match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
        _ => format!("the connection broke: {error}"),
    };
    Error::new(ErrorKind::Unavailable, what).source_error(error)
}
