//! The task behind a connection: full duplex, everything that is ready in one write, answers in order.
//!
//! It waits one `yield_now()` before it writes, so that all tasks that are ready have asked; that
//! makes the flights, without making a lone request wait. Time limits are kept here, on this
//! task's runtime: at the limit the caller is told, while the place of the answer stays, so that
//! later answers still find their requests.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use metrics::{Counter, Histogram};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use super::connection::{Request, Shared};
use super::link::{Established, Link, establish};
use super::options::Options;
use super::outgoing::{MOST_UNSENT, Outgoing};
use super::pushes::Pushes;
use super::refusal::is_no_script;
use super::wire::{Encoder, Value};
use crate::error::{Error, ErrorKind, Result};

/// The most requests in one write: the server works on these while the next are written. Measured
/// between 12 and 64; without a bound, client and server take turns.
const FLIGHT: u32 = 32;
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
    requests: mpsc::UnboundedReceiver<Request>,
    closed: bool,
    shared: Arc<Shared>,
    options: Arc<Options>,
    subscriber: Option<Subscriber>,
    meters: Meters,
    /// Taken in, not yet given to the line.
    waiting: VecDeque<Request>,
    /// Given to the line, unanswered, in order.
    flying: VecDeque<Flying>,
    /// How many of these, from the front, were told that it took too long.
    told: usize,
    out: Outgoing,
    heard: Instant,
    tick: Pin<Box<Sleep>>,
    /// Why the last attempt to connect failed.
    trouble: Option<Error>,
}

struct Flying {
    request: Request,
    /// Where it starts in all that was given to this line.
    start: u64,
    got: Vec<Value>,
}

/// The figures of one connection. Made where the caller connects, with the recorder there is then.
pub(super) struct Meters {
    flights: Counter,
    flight_size: Histogram,
    roundtrip: Histogram,
}

enum Event {
    Asked(Request),
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
    pub(super) fn new(
        requests: mpsc::UnboundedReceiver<Request>,
        shared: Arc<Shared>,
        options: Arc<Options>,
        subscriber: Option<Subscriber>,
        meters: Meters,
    ) -> Actor {
        Actor {
            requests,
            closed: false,
            shared,
            options,
            subscriber,
            meters,
            waiting: VecDeque::new(),
            flying: VecDeque::new(),
            told: 0,
            out: Outgoing::default(),
            heard: Instant::now(),
            tick: Box::pin(tokio::time::sleep(Duration::ZERO)),
            trouble: None,
        }
    }

    /// Runs until all senders are gone and what they asked is done.
    pub(super) async fn run(mut self, first: Established) {
        let mut next = Some(first);
        while let Some(established) = next {
            match self.serve(established).await {
                End::Closed => return,
                End::Broken(error) => {
                    tracing::debug!(%error, "a connection to redis broke");
                    self.line_broke(&error);
                }
            }
            next = self.reconnect().await;
            if next.is_some() {
                tracing::debug!("a connection to redis was made again");
            }
        }
    }

    async fn serve(&mut self, established: Established) -> End {
        let Established { mut link, floor, early } = established;
        self.shared.floor.store(floor, Ordering::Release);
        self.out = Outgoing::default();
        self.trouble = None;
        self.heard = Instant::now();
        early.into_iter().for_each(|push| self.deliver(push));
        loop {
            self.fill();
            if self.closed && self.waiting.is_empty() && self.flying.is_empty() {
                return End::Closed;
            }
            match poll_fn(|cx| self.poll_event(&mut link, cx)).await {
                Event::Asked(request) => self.take_in(request),
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
                Event::Closed => continue,
                Event::Broken(error) => return End::Broken(error),
            }
            // Whoever is ready, or was just answered, asks before the next write.
            tokio::task::yield_now().await;
            self.take_in_all();
        }
    }

    fn poll_event(&mut self, link: &mut Link, cx: &mut Context<'_>) -> Poll<Event> {
        loop {
            if let Err(error) = self.out.poll(link, cx) {
                return Poll::Ready(Event::Broken(cut(error)));
            }
            if self.waiting.is_empty() || self.out.unsent() > 0 {
                break;
            }
            self.fill();
        }
        match link.poll_read(cx) {
            Poll::Ready(Ok(0)) => {
                return Poll::Ready(Event::Broken(cut(std::io::ErrorKind::UnexpectedEof.into())));
            }
            Poll::Ready(Ok(_)) => return Poll::Ready(Event::Heard),
            Poll::Ready(Err(error)) => return Poll::Ready(Event::Broken(cut(error))),
            Poll::Pending => {}
        }
        if !self.closed {
            match self.requests.poll_recv(cx) {
                Poll::Ready(Some(request)) => return Poll::Ready(Event::Asked(request)),
                Poll::Ready(None) => {
                    self.closed = true;
                    return Poll::Ready(Event::Closed);
                }
                Poll::Pending => {}
            }
        }
        let ticks = !self.flying.is_empty() || !self.waiting.is_empty() || self.mailboxes() > 0;
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

    fn take_in(&mut self, mut request: Request) {
        request.deadline = Some(Instant::now() + self.options.limit);
        self.waiting.push_back(request);
    }

    fn take_in_all(&mut self) {
        let mut deadline = None;
        while let Ok(mut request) = self.requests.try_recv() {
            request.deadline = Some(*deadline.get_or_insert_with(|| Instant::now() + self.options.limit));
            self.waiting.push_back(request);
        }
    }

    /// Gives what waits to the line: one flight.
    fn fill(&mut self) {
        let mut size = 0;
        while self.out.unsent() < MOST_UNSENT && size < FLIGHT {
            let Some(request) = self.waiting.pop_front() else { break };
            if !request.must && request.answer.as_ref().is_some_and(|answer| answer.is_closed()) {
                // Its caller went away before it was sent: nobody would undo it.
                self.settle(request, Ok(Vec::new()));
                continue;
            }
            let start = self.out.given;
            self.out.give(&request.bytes);
            self.flying.push_back(Flying { request, start, got: Vec::new() });
            size += 1;
        }
        if size > 0 {
            self.meters.flights.increment(1);
            self.meters.flight_size.record(f64::from(size));
        }
    }

    fn read(&mut self, link: &mut Link) -> Result<()> {
        let now = Instant::now();
        self.heard = now;
        loop {
            match link.incoming.next() {
                Ok(None) => return Ok(()),
                Ok(Some(push @ Value::Push(_))) => self.deliver(push),
                Ok(Some(reply)) => self.complete(reply, now)?,
                Err(nonsense) => return Err(Error::new(ErrorKind::Internal, nonsense.0)),
            }
        }
    }

    fn deliver(&self, push: Value) {
        let (Some(subscriber), Value::Push(items)) = (&self.subscriber, push) else { return };
        if let [kind, channel, payload] = &items[..]
            && kind.text() == Some(b"message")
            && channel.text() == Some(&subscriber.channel)
        {
            let floor = self.shared.floor.load(Ordering::Acquire);
            subscriber.pushes.deliver(payload.text().unwrap_or_default(), floor);
        }
    }

    fn complete(&mut self, reply: Value, now: Instant) -> Result<()> {
        let Some(front) = self.flying.front_mut() else {
            return Err(Error::new(ErrorKind::Internal, "the server answered what was not asked"));
        };
        front.got.push(reply);
        if front.got.len() < front.request.replies {
            return Ok(());
        }
        let Some(Flying { mut request, got, .. }) = self.flying.pop_front() else { return Ok(()) };
        let told = self.told > 0;
        self.told = self.told.saturating_sub(1);
        if let Some(deadline) = request.deadline {
            self.meters.roundtrip.record((now + self.options.limit - deadline).as_secs_f64());
        }
        if let (Some(script), [Value::Error(text)]) = (request.script, &got[..]) {
            // Nothing was run. Whoever was told, or went away, may have undone it: then it must not run late.
            let wanted = request.must || request.answer.as_ref().is_some_and(|answer| !answer.is_closed());
            if is_no_script(text) && !told && wanted {
                tracing::debug!(script = script.name, "the server did not know a script");
                request.bytes = script.in_full(&request.bytes);
                request.script = None;
                self.waiting.push_back(request);
                return Ok(());
            }
        }
        self.settle(request, Ok(got));
        Ok(())
    }

    fn settle(&self, request: Request, result: Result<Vec<Value>>) {
        self.shared.outstanding.fetch_sub(1, Ordering::Relaxed);
        if let Some(answer) = request.answer {
            // Whoever does not wait any more has no use for it.
            let _ = answer.send(result);
        }
    }

    /// Tells those whose time is up; an error if the line is to be given up.
    fn check_limits(&mut self) -> Result<()> {
        let now = Instant::now();
        self.expire_waiting(now);
        while let Some(flying) = self.flying.get_mut(self.told) {
            if flying.request.deadline.is_none_or(|deadline| deadline > now) {
                break;
            }
            self.told += 1;
            if let Some(answer) = flying.request.answer.take() {
                let what = format!("no answer within {:?}", self.options.limit);
                let _ = answer.send(Err(Error::new(ErrorKind::Unavailable, what).maybe()));
            }
        }
        let oldest = self.flying.front().and_then(|flying| flying.request.deadline);
        if oldest.is_some_and(|deadline| deadline + self.options.limit / 2 <= now) {
            return Err(Error::new(ErrorKind::Unavailable, "the server does not answer any more"));
        }
        if self.flying.is_empty() && self.mailboxes() > 0 && now.duration_since(self.heard) >= SILENCE {
            let mut ping = Encoder::default();
            ping.command(1).word(b"PING");
            self.shared.outstanding.fetch_add(1, Ordering::Relaxed);
            self.take_in(Request::plain(ping.into_bytes(), 1));
            // A check of the line, and no question: a silent one is not waited for as long.
            if let Some(ping) = self.waiting.back_mut() {
                ping.deadline = Some(now + self.options.limit / 4);
            }
        }
        Ok(())
    }

    fn expire_waiting(&mut self, now: Instant) {
        while self.waiting.front().is_some_and(|front| front.deadline.is_none_or(|deadline| deadline <= now))
        {
            let Some(request) = self.waiting.pop_front() else { return };
            let limit = self.options.limit;
            let error = match &self.trouble {
                Some(trouble) => {
                    Error::new(ErrorKind::Unavailable, format!("not sent within {limit:?}: {trouble}"))
                        .source_error(trouble.clone())
                }
                None => Error::new(ErrorKind::Unavailable, format!("not sent within {limit:?}")),
            };
            self.settle(request, Err(error));
        }
    }

    /// What was under way may have been carried out; what was not sent goes with the next line.
    fn line_broke(&mut self, error: &Error) {
        let told = std::mem::take(&mut self.told);
        let flying = std::mem::take(&mut self.flying);
        let mut carried = VecDeque::new();
        for (place, Flying { request, start, .. }) in flying.into_iter().enumerate() {
            let unsent = start >= self.out.taken;
            // A hand-back is of no caller and idempotent.
            let again = request.must && request.answer.is_none();
            if place >= told && (unsent || again) {
                carried.push_back(request);
            } else {
                self.settle(request, Err(error.clone().maybe()));
            }
        }
        carried.append(&mut self.waiting);
        self.waiting = carried;
        self.trouble = Some(error.clone());
    }

    /// Makes a new line once one is needed; `None` when none will be any more.
    async fn reconnect(&mut self) -> Option<Established> {
        let mut pause = FIRST_PAUSE;
        // A dead path is given up early, and another tried; a distant server gets the time it takes.
        let mut within = self.options.limit;
        loop {
            while self.waiting.is_empty() && (self.closed || self.mailboxes() == 0) {
                let request = self.requests.recv().await?;
                self.take_in(request);
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
                    self.take_in_all();
                    for request in std::mem::take(&mut self.waiting) {
                        self.settle(request, Err(error.clone()));
                    }
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

    /// Takes requests in and tells those whose time is up, while there is no line.
    async fn meanwhile(&mut self) {
        tokio::select! {
            biased;
            request = self.requests.recv(), if !self.closed => match request {
                Some(request) => self.take_in(request),
                None => self.closed = true,
            },
            () = self.tick.as_mut() => {
                self.restart_tick();
                self.expire_waiting(Instant::now());
            }
        }
    }
}

impl Meters {
    pub(super) fn new() -> Meters {
        Meters {
            flights: metrics::counter!("tenure_flights_total", "engine" => "redis"),
            flight_size: metrics::histogram!("tenure_flight_size", "engine" => "redis"),
            roundtrip: metrics::histogram!("tenure_engine_roundtrip_seconds", "engine" => "redis"),
        }
    }
}

fn cut(error: std::io::Error) -> Error {
    let what = match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
        _ => format!("the connection broke: {error}"),
    };
    Error::new(ErrorKind::Unavailable, what).source_error(error)
}
