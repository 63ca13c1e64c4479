//! What the callers of a connection share with its task: the requests on their way to the line.
//!
//! Who asks while nothing is under way writes at once, from its own thread: a lone request waits for
//! nobody. So does who completes a flight: the server works on that while the next one is made. The
//! connection's task writes whatever is left, reads, and keeps the time limits. At its limit a
//! caller is told, while the place of the answer stays, so that later answers still find their
//! requests.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use metrics::{Counter, Histogram};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::connection::{MOST_OUTSTANDING, Request, closed};
use super::link::Writer;
use super::outgoing::{MOST_UNSENT, Outgoing};
use super::refusal::is_no_script;
use super::wire::Value;
use crate::error::{Error, ErrorKind, Result};

/// The most requests in one write: the server works on these while the next are written. Measured;
/// without a bound, client and server take turns.
const FLIGHT: usize = 32;
/// The same where callers and the connection's task share a thread. They cannot work side by side, so
/// the callers complete flights themselves, and small ones.
const FLIGHT_ON_ONE_THREAD: usize = 16;

/// What both ends of a connection know.
pub(super) struct Shared {
    lane: Mutex<Lane>,
    /// The counter of tokens when the connection was made.
    floor: AtomicU64,
}

impl Shared {
    pub(super) fn new(limit: Duration, one_thread: bool, meters: Meters) -> Shared {
        Shared { lane: Mutex::new(Lane::new(limit, one_thread, meters)), floor: AtomicU64::new(0) }
    }

    /// Held for short, and never while something of ours is called that may ask again.
    pub(super) fn lock(&self) -> MutexGuard<'_, Lane> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn floor(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }

    pub(super) fn set_floor(&self, floor: u64) {
        self.floor.fetch_max(floor, Ordering::AcqRel);
    }

    /// Takes a request in, and writes it if it need not wait.
    pub(super) fn send(&self, request: Request) -> Result<()> {
        let mut lane = self.lock();
        lane.take_in(request)?;
        while let Some(mut line) = lane.line_to_write_now() {
            lane.fill(&mut line);
            drop(lane);
            let written = line.out.write_now(&line.writer);
            lane = self.lock();
            lane.give_back(line, written);
        }
        let task = lane.task_if_needed();
        drop(lane);
        task.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// For the task: writes what the line takes; with `all`, also what waits, flight by flight. Where
    /// a caller writes at this moment, that one goes on or wakes the task.
    pub(super) fn poll_write(&self, all: bool, cx: &mut Context<'_>) -> io::Result<()> {
        let mut lane = self.lock();
        loop {
            if let Some(error) = lane.broken.take() {
                return Err(error);
            }
            let Some(mut line) = lane.line.take() else { return Ok(()) };
            if all && line.out.unsent() == 0 {
                lane.fill(&mut line);
            }
            if line.out.is_done() {
                lane.line = Some(line);
                return Ok(());
            }
            drop(lane);
            let written = line.out.poll(&mut line.writer, cx);
            lane = self.lock();
            // A line that took it all, but still has to be flushed (TLS), has told the task to wait.
            let more = all && line.out.is_done();
            lane.give_back(line, written);
            if !more && lane.broken.is_none() {
                return Ok(());
            }
        }
    }

    /// Nobody will ask any more; what was asked is still done.
    pub(super) fn close(&self) {
        let mut lane = self.lock();
        lane.closed = true;
        let task = lane.task.take();
        drop(lane);
        task.into_iter().for_each(Waker::wake);
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

/// The figures of one connection. Made where the caller connects, with the recorder there is then.
pub(super) struct Meters {
    flights: Counter,
    flight_size: Histogram,
    roundtrip: Histogram,
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

/// The side of a line that is written. Whoever writes takes it out of the lane meanwhile, so that
/// nobody waits for a system call.
struct Line {
    writer: Writer,
    out: Outgoing,
    /// Which of the connection's lines it is.
    number: u64,
}

struct Flying {
    request: Request,
    /// Where it starts in all that was given to this line.
    start: u64,
    got: Vec<Value>,
}

/// Somebody to be told, once the lane is not locked any more.
pub(super) type Told = (oneshot::Sender<Result<Vec<Value>>>, Result<Vec<Value>>);

pub(super) struct Lane {
    /// Taken in, not yet given to the line.
    waiting: VecDeque<Request>,
    /// Given to the line, unanswered, in order.
    flying: VecDeque<Flying>,
    /// How many of these, from the front, were told that it took too long.
    told: usize,
    /// While there is one, and nobody writes on it.
    line: Option<Line>,
    /// How many lines there were.
    lines: u64,
    /// Why a write failed.
    broken: Option<io::Error>,
    /// The connection's task, asleep.
    task: Option<Waker>,
    /// Whether it was needed while it was awake.
    pub(super) wanted: bool,
    /// Whether it wakes by itself in time to look at the limits.
    pub(super) ticks: bool,
    pub(super) closed: bool,
    one_thread: bool,
    limit: Duration,
    meters: Meters,
}

impl Lane {
    fn new(limit: Duration, one_thread: bool, meters: Meters) -> Lane {
        Lane {
            waiting: VecDeque::new(),
            flying: VecDeque::new(),
            told: 0,
            line: None,
            lines: 0,
            broken: None,
            task: None,
            wanted: false,
            ticks: false,
            closed: false,
            one_thread,
            limit,
            meters,
        }
    }

    pub(super) fn take_in(&mut self, mut request: Request) -> Result<()> {
        if self.waiting.len() + self.flying.len() >= MOST_OUTSTANDING {
            let what = format!("{MOST_OUTSTANDING} requests are outstanding on the connection");
            return Err(Error::new(ErrorKind::Full, what));
        }
        if self.closed {
            return Err(closed());
        }
        request.deadline.get_or_insert_with(|| Instant::now() + self.limit);
        self.waiting.push_back(request);
        Ok(())
    }

    /// The line, if nothing is under way or a flight is complete: then the caller writes.
    fn line_to_write_now(&mut self) -> Option<Line> {
        let complete = (self.one_thread && self.waiting.len() >= self.flight())
            || (self.flying.is_empty() && !self.waiting.is_empty());
        self.line.take_if(|line| complete && line.writer.takes_at_once() && line.out.unsent() == 0)
    }

    fn flight(&self) -> usize {
        if self.one_thread { FLIGHT_ON_ONE_THREAD } else { FLIGHT }
    }

    fn give_back(&mut self, line: Line, written: io::Result<()>) {
        // It may have been found broken meanwhile.
        if line.number == self.lines {
            self.line = Some(line);
            self.broken = written.err();
        }
    }

    /// The task, if it has to write the rest, to keep the time, or to see that the line is broken.
    fn task_if_needed(&mut self) -> Option<Waker> {
        // While somebody writes, that one asks this when it has written.
        let unsent = self.line.as_ref().is_some_and(|line| line.out.unsent() > 0 || !self.waiting.is_empty());
        let needed = !self.ticks || unsent || self.broken.is_some();
        if !needed {
            return None;
        }
        self.wanted = self.task.is_none();
        self.task.take()
    }

    /// From now on a request wakes the task, if it needs it.
    pub(super) fn sleep(&mut self, cx: &Context<'_>) {
        match &mut self.task {
            Some(task) => task.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.flying.is_empty()
    }

    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn flies(&self) -> bool {
        !self.flying.is_empty()
    }

    /// A new line.
    pub(super) fn begin(&mut self, writer: Writer) {
        self.broken = None;
        self.lines += 1;
        self.line = Some(Line { writer, out: Outgoing::default(), number: self.lines });
    }

    /// Gives what waits to the line: one flight.
    fn fill(&mut self, line: &mut Line) {
        let out = &mut line.out;
        let mut size: u16 = 0;
        while out.unsent() < MOST_UNSENT && usize::from(size) < self.flight() {
            let Some(request) = self.waiting.pop_front() else { break };
            if !request.must && request.answer.as_ref().is_some_and(|answer| answer.is_closed()) {
                // Its caller went away before it was sent: nobody would undo it.
                continue;
            }
            let start = out.given;
            out.give(&request.bytes);
            self.flying.push_back(Flying { request, start, got: Vec::new() });
            size += 1;
        }
        if size > 0 {
            self.meters.flights.increment(1);
            self.meters.flight_size.record(f64::from(size));
        }
    }

    /// The next answer of the server. Who is to be told of it, if it is complete.
    pub(super) fn complete(&mut self, reply: Value, now: Instant) -> Result<Option<Told>> {
        let Some(front) = self.flying.front_mut() else {
            return Err(Error::new(ErrorKind::Internal, "the server answered what was not asked"));
        };
        front.got.push(reply);
        if front.got.len() < front.request.replies {
            return Ok(None);
        }
        let Some(Flying { mut request, got, .. }) = self.flying.pop_front() else { return Ok(None) };
        let told = self.told > 0;
        self.told = self.told.saturating_sub(1);
        if let Some(deadline) = request.deadline {
            self.meters.roundtrip.record((now + self.limit - deadline).as_secs_f64());
        }
        if let (Some(script), [Value::Error(text)]) = (request.script, &got[..]) {
            // Nothing was run. Whoever was told, or went away, may have undone it: then it must not run late.
            let wanted = request.must || request.answer.as_ref().is_some_and(|answer| !answer.is_closed());
            if is_no_script(text) && !told && wanted {
                tracing::debug!(script = script.name, "the server did not know a script");
                request.bytes = script.in_full(&request.bytes);
                request.script = None;
                self.waiting.push_back(request);
                return Ok(None);
            }
        }
        Ok(request.answer.map(|answer| (answer, Ok(got))))
    }

    /// Those whose time is up; an error if the line is to be given up.
    pub(super) fn check_limits(&mut self, now: Instant) -> (Vec<Told>, Result<()>) {
        let mut late = self.expire_waiting(now, None);
        while let Some(flying) = self.flying.get_mut(self.told) {
            if flying.request.deadline.is_none_or(|deadline| deadline > now) {
                break;
            }
            self.told += 1;
            if let Some(answer) = flying.request.answer.take() {
                let what = format!("no answer within {:?}", self.limit);
                late.push((answer, Err(Error::new(ErrorKind::Unavailable, what).maybe())));
            }
        }
        let oldest = self.flying.front().and_then(|flying| flying.request.deadline);
        let dead = oldest.is_some_and(|deadline| deadline + self.limit / 2 <= now);
        let line = match dead {
            true => Err(Error::new(ErrorKind::Unavailable, "the server does not answer any more")),
            false => Ok(()),
        };
        (late, line)
    }

    /// Those who waited too long for a line, told of the trouble with it.
    pub(super) fn expire_waiting(&mut self, now: Instant, trouble: Option<&Error>) -> Vec<Told> {
        let mut late = Vec::new();
        while self.waiting.front().is_some_and(|front| front.deadline.is_none_or(|deadline| deadline <= now))
        {
            let Some(Request { answer: Some(answer), .. }) = self.waiting.pop_front() else { continue };
            let limit = self.limit;
            let error = match trouble {
                Some(trouble) => {
                    Error::new(ErrorKind::Unavailable, format!("not sent within {limit:?}: {trouble}"))
                        .source_error(trouble.clone())
                }
                None => Error::new(ErrorKind::Unavailable, format!("not sent within {limit:?}")),
            };
            late.push((answer, Err(error)));
        }
        late
    }

    /// Those who wait, when no line can be had.
    pub(super) fn refuse_waiting(&mut self, error: &Error) -> Vec<Told> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_iter().filter_map(|request| Some((request.answer?, Err(error.clone())))).collect()
    }

    /// The line is no more. What was under way may have been carried out, and its callers are to be
    /// told; what was not sent goes with the next line.
    pub(super) fn line_broke(&mut self, error: &Error) -> Vec<Told> {
        // If somebody writes on it at this moment, everything may get through.
        let taken = self.line.take().map_or(u64::MAX, |line| line.out.taken);
        self.lines += 1;
        let mut cut = Vec::new();
        let told = std::mem::take(&mut self.told);
        let flying = std::mem::take(&mut self.flying);
        let mut carried = VecDeque::new();
        for (place, Flying { request, start, .. }) in flying.into_iter().enumerate() {
            let unsent = start >= taken;
            // A hand-back is of no caller and idempotent.
            let again = request.must && request.answer.is_none();
            if place >= told && (unsent || again) {
                carried.push_back(request);
            } else if let Some(answer) = request.answer {
                cut.push((answer, Err(error.clone().maybe())));
            }
        }
        carried.append(&mut self.waiting);
        self.waiting = carried;
        cut
    }

    /// The task has ended: nothing will be written or answered any more. What is returned is to be
    /// dropped once the lane is not locked any more: that tells those who wait.
    #[must_use]
    pub(super) fn end(&mut self) -> impl Drop + use<> {
        self.closed = true;
        self.line = None;
        self.lines += 1;
        let waiting = std::mem::take(&mut self.waiting);
        let flying = std::mem::take(&mut self.flying);
        waiting.into_iter().chain(flying.into_iter().map(|flying| flying.request)).collect::<Vec<_>>()
    }
}
