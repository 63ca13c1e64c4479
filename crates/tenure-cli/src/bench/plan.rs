//! What is measured, in which order.

use std::fmt;
use std::time::Duration;

use super::figures::{Kind, Row};
use super::load::{Load, Timed, closed_loop};
use super::tap::{self, Bytes};
use super::target::{Server, Target};
use super::{Bench, BenchArgs, Part, Result, Stop, handover, held, poller, raw};

/// How many requests the raw limits keep under way.
const DEPTH: usize = 64;
const HAND_OVERS: usize = 100;
const TERM: Duration = Duration::from_secs(30);

/// How long one measurement takes.
pub(super) fn span(args: &BenchArgs) -> Duration {
    if args.quick { Duration::from_millis(100) } else { args.span }
}

/// One measurement.
#[derive(Clone)]
pub(super) struct Step {
    kind: Kind,
    size: usize,
    span: Duration,
    bytes: Option<Bytes>,
}

/// For the line of progress.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = Row { kind: self.kind, size: self.size, figures: Vec::new() };
        match self.kind {
            Kind::Pairs => write!(f, "uncontended pairs, {row}"),
            Kind::OneKey => write!(f, "one key, {row} of one client"),
            Kind::Clients | Kind::Poller => write!(f, "one key, {row}"),
            Kind::Held => write!(f, "{row} held"),
            _ => row.fmt(f),
        }
    }
}

/// All measurements of one run. The raw limits stand between the measurements they are compared with.
pub(super) async fn steps(args: &BenchArgs, target: &Target) -> Result<Vec<Step>> {
    let is_wanted = |part| args.only.is_empty() || args.only.contains(&part);
    let span = span(args);
    let mut steps = Vec::new();
    let mut add = |kind, size, span| steps.push(Step { kind, size, span, bytes: None });
    let contenders: &[usize] = if args.quick { &[8] } else { &[8, 64] };
    if is_wanted(Part::Pairs) {
        let tasks: &[usize] = if args.quick { &[1, 16] } else { &[1, 16, 64, 256] };
        let (few, many) = tasks.split_at(tasks.len() - 1);
        if target.server.is_some() {
            add(Kind::Plain, DEPTH, span);
        }
        few.iter().for_each(|tasks| add(Kind::Pairs, *tasks, span));
        if target.server.is_some() {
            add(Kind::Replay, DEPTH, span);
        }
        many.iter().for_each(|tasks| add(Kind::Pairs, *tasks, span));
    }
    if is_wanted(Part::OneKey) {
        contenders.iter().for_each(|tasks| add(Kind::OneKey, *tasks, span));
    }
    if is_wanted(Part::Clients) && target.is_shared {
        // So long that each gets a hundred grants: these are slow.
        let span = span * 2;
        for clients in contenders {
            add(Kind::Clients, *clients, span);
            if target.server.is_some() {
                add(Kind::Poller, *clients, span);
            }
        }
    }
    if is_wanted(Part::HandOver) {
        add(Kind::HandOver, if args.quick { 5 } else { HAND_OVERS }, span);
    }
    if is_wanted(Part::Held) {
        let counts: &[usize] = if args.quick { &[200] } else { &args.held };
        let held_for = if args.quick { Duration::from_millis(500) } else { args.held_for };
        counts.iter().for_each(|leases| add(Kind::Held, *leases, held_for));
    }
    if let Some(server) = &target.server {
        for step in steps.iter_mut().filter(|step| step.kind == Kind::Replay) {
            step.bytes = Some(tap::record(server, DEPTH).await?);
        }
    }
    Ok(steps)
}

impl Step {
    pub(super) fn has_many_connections(&self) -> bool {
        matches!(self.kind, Kind::Clients | Kind::Poller)
    }

    /// Carries it out. What it acquires is given back when its clients are closed, at the latest.
    pub(super) async fn measure(&self, bench: &Bench) -> Result<Row> {
        let (size, span) = (self.size, self.span);
        let figures = match self.kind {
            Kind::Plain => {
                let measure = move |server: Server, stop: Stop| raw::plain(&server, size, span, &stop);
                vec![("pairs_per_s", blocking(bench, measure).await?)]
            }
            Kind::Replay => {
                let bytes = self.bytes.clone().ok_or("nothing was recorded")?;
                let measure = move |server: Server, stop: Stop| raw::replay(&server, &bytes, span, &stop);
                vec![("pairs_per_s", blocking(bench, measure).await?)]
            }
            Kind::Pairs => {
                let tenure = bench.connect().await?;
                let lock = |n| tenure.mutex(bench.target.key(&format!("pairs:{n}")));
                closed_loop((0..size).map(lock).collect(), Timed::Pair, span).await?.pairs()
            }
            Kind::OneKey => {
                let tenure = bench.connect().await?;
                let lock = |_| tenure.mutex(bench.target.key("one-key"));
                closed_loop((0..size).map(lock).collect(), Timed::Wait, span).await?.turns()
            }
            Kind::Clients => clients(bench, size, span).await?.turns(),
            Kind::Poller => poller::measure(bench, size, span).await?.turns(),
            Kind::HandOver => handover::measure(bench, size).await?,
            Kind::Held => held::measure(bench, size, TERM, span).await?,
        };
        Ok(Row { kind: self.kind, size, figures })
    }
}

/// Each lock by a client of its own.
async fn clients(bench: &Bench, count: usize, span: Duration) -> Result<Load> {
    let mut locks = Vec::new();
    for _ in 0..count {
        locks.push(bench.connect().await?.mutex(bench.target.key("clients")));
    }
    closed_loop(locks, Timed::Wait, span).await
}

/// Work that blocks, on a thread for that. It looks itself whether it should end.
async fn blocking<T: Send + 'static>(
    bench: &Bench,
    work: impl FnOnce(Server, Stop) -> Result<T> + Send + 'static,
) -> Result<T> {
    let server = bench.target.server.clone().ok_or("there is no server to ask")?;
    let stop = bench.stop.clone();
    tokio::task::spawn_blocking(move || work(server, stop)).await?
}
