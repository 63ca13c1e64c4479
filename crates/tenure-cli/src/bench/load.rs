//! Tasks that acquire and release again and again, and what that came to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tenure::{Mutex, Released};
use tokio::task::JoinSet;

use super::Result;
use super::figures::Figures;
use super::machine::process_cpu;

/// Longer than this, and it is counted as so long.
const LONGEST: Duration = Duration::from_secs(600);

/// Times to within one percent.
pub(super) struct Times(Histogram<u64>);

impl Times {
    pub(super) fn new() -> Result<Times> {
        Ok(Times(Histogram::new_with_bounds(1, nanos(LONGEST), 2)?))
    }

    pub(super) fn record(&mut self, time: Duration) {
        self.0.saturating_record(nanos(time));
    }

    pub(super) fn add(&mut self, others: &Times) -> Result<()> {
        Ok(self.0.add(&others.0)?)
    }

    /// In milliseconds.
    pub(super) fn quantile(&self, quantile: f64) -> f64 {
        self.0.value_at_quantile(quantile) as f64 / 1e6
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// When to count: after a while of warming up, for a while.
#[derive(Clone, Copy)]
pub(super) struct Window {
    begin: Instant,
    end: Instant,
}

impl Window {
    /// Scripts are uploaded, queues filled and caches warm after a tenth of a second.
    pub(super) fn after_warming_up(span: Duration) -> Window {
        let begin = Instant::now() + Duration::from_millis(100);
        Window { begin, end: begin + span }
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        now >= self.end
    }

    pub(super) fn contains(&self, moment: Instant) -> bool {
        self.begin <= moment && moment < self.end
    }

    /// The CPU time of this process within the window.
    async fn cpu(self) -> Duration {
        tokio::time::sleep_until(self.begin.into()).await;
        let before = process_cpu();
        tokio::time::sleep_until(self.end.into()).await;
        process_cpu().saturating_sub(before)
    }
}

/// Which time is recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Timed {
    /// From asking to having: tasks that want the same key.
    Wait,
    /// From asking to having given back: tasks that meet nobody.
    Pair,
}

/// Counts how often the one who is in is another than the last one.
#[derive(Clone)]
pub(super) struct Changes {
    last: Arc<AtomicUsize>,
    count: Arc<AtomicU64>,
}

impl Changes {
    pub(super) fn new() -> Changes {
        Changes { last: Arc::new(AtomicUsize::new(usize::MAX)), count: Arc::default() }
    }

    /// Called while holding.
    pub(super) fn entered(&self, who: usize) {
        if self.last.swap(who, Ordering::Relaxed) != who {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What one task counted.
pub(super) struct Counted {
    grants: u64,
    times: Times,
}

impl Counted {
    pub(super) fn new() -> Result<Counted> {
        Ok(Counted { grants: 0, times: Times::new()? })
    }

    pub(super) fn count(&mut self, time: Duration) {
        self.grants += 1;
        self.times.record(time);
    }
}

/// What all of them came to.
pub(super) struct Load {
    grants: u64,
    most: u64,
    fewest: u64,
    changes: u64,
    span: Duration,
    cpu: Duration,
    times: Times,
}

impl Load {
    pub(super) fn of(counted: &[Counted], changes: &Changes, window: Window, cpu: Duration) -> Result<Load> {
        let mut times = Times::new()?;
        for one in counted {
            times.add(&one.times)?;
        }
        let each = || counted.iter().map(|one| one.grants);
        Ok(Load {
            grants: each().sum(),
            most: each().max().unwrap_or(0),
            fewest: each().min().unwrap_or(0),
            changes: changes.count.load(Ordering::Relaxed),
            span: window.end - window.begin,
            cpu,
            times,
        })
    }

    /// As pairs that meet nobody.
    pub(super) fn pairs(&self) -> Figures {
        vec![
            ("pairs_per_s", self.per_second(self.grants)),
            ("pair_p50_ms", self.times.quantile(0.5)),
            ("pair_p99_ms", self.times.quantile(0.99)),
            ("pair_p999_ms", self.times.quantile(0.999)),
            ("client_cpu_us", self.cpu_us()),
        ]
    }

    /// As turns at one key.
    pub(super) fn turns(&self) -> Figures {
        vec![
            ("grants_per_s", self.per_second(self.grants)),
            ("hand_overs_per_s", self.per_second(self.changes)),
            ("wait_p50_ms", self.times.quantile(0.5)),
            ("wait_p99_ms", self.times.quantile(0.99)),
            // Somebody who got nothing makes it infinite.
            ("most_over_fewest", self.most as f64 / self.fewest as f64),
            ("fewest_grants", self.fewest as f64),
            ("client_cpu_us", self.cpu_us()),
        ]
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.span.as_secs_f64()
    }

    fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.grants as f64
    }
}

/// One task per lock acquires and releases it until the window is over.
pub(super) async fn closed_loop(locks: Vec<Mutex>, timed: Timed, span: Duration) -> Result<Load> {
    let (window, changes) = (Window::after_warming_up(span), Changes::new());
    let mut tasks = JoinSet::new();
    for (who, lock) in locks.into_iter().enumerate() {
        tasks.spawn(one_task(who, lock, timed, window, changes.clone()));
    }
    collect(tasks, &changes, window).await
}

/// Waits for the tasks that count.
pub(super) async fn collect(
    mut tasks: JoinSet<Result<Counted>>,
    changes: &Changes,
    window: Window,
) -> Result<Load> {
    let cpu = tokio::spawn(window.cpu());
    let mut counted = Vec::new();
    while let Some(one) = tasks.join_next().await {
        counted.push(one??);
    }
    Load::of(&counted, changes, window, cpu.await?)
}

async fn one_task(
    who: usize,
    lock: Mutex,
    timed: Timed,
    window: Window,
    changes: Changes,
) -> Result<Counted> {
    let mut counted = Counted::new()?;
    let mut asked = Instant::now();
    while !window.is_over(asked) {
        let lease = lock.acquire().await?;
        let mut moment = asked;
        if timed == Timed::Wait {
            moment = Instant::now();
            if window.contains(moment) {
                changes.entered(who);
            }
        }
        if lease.release().await? == Released::WasLost {
            return Err(
                "a lease was lost while it was measured: the machine or the engine is overloaded".into()
            );
        }
        let released = Instant::now();
        match timed {
            Timed::Wait if window.contains(moment) => counted.count(moment - asked),
            Timed::Pair if window.contains(released) => counted.count(released - asked),
            _ => {}
        }
        asked = released;
    }
    Ok(counted)
}
