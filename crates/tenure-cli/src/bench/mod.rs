//! `tenure bench`: what locks cost on an engine, beside the raw limits of the same server in the same run.
//!
//! Each measurement has a runtime and clients of its own, on a thread of its own, so that the one that
//! hears signals can end it and remove what it left.

mod figures;
mod handover;
mod held;
mod load;
mod machine;
mod plan;
mod plot;
mod poller;
mod progress;
mod raw;
mod show;
mod tap;
mod target;

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::process::Signal;
use tenure::Tenure;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{oneshot, watch};

use self::figures::{Row, add_ratios, medians};
use self::machine::Machine;
use self::plan::Step;
use self::progress::Progress;
use self::target::Target;
use crate::engine_url::EngineArgs;
use crate::exit::Exit;
use crate::signals::Signals;
use crate::{duration, say};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The most leases that are held at a time.
const MOST_LEASES: usize = 100_000;
/// How long saying goodbye may take.
const GOODBYE: Duration = Duration::from_secs(8);

/// `tenure bench`.
#[derive(Args)]
pub(crate) struct BenchArgs {
    /// The engine's URL, such as redis://127.0.0.1:6379. Without it, as for `tenure run`.
    #[arg(value_name = "URL")]
    url: Option<String>,

    /// Print JSON, one object per line.
    #[arg(long, conflicts_with = "markdown")]
    json: bool,

    /// Print Markdown, for a page.
    #[arg(long)]
    markdown: bool,

    /// Write charts into this folder: pairs.svg, latency.svg and waits.svg.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,

    /// Measure only this; may be said several times, or with commas.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,

    /// Measure everything so often and report the median.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=99))]
    runs: u8,

    /// How long each measurement takes; twice as long for separate clients.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = duration::above_zero)]
    span: Duration,

    /// How many leases are held at a time.
    #[arg(long, value_name = "COUNT", value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000])]
    held: Vec<usize>,

    /// How long they are held; their term is 30s.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = duration::above_zero)]
    held_for: Duration,

    /// Use `connect_beside` on a runtime of one thread, instead of `connect` on one of two.
    #[arg(long)]
    beside: bool,

    /// End after this time, with exit code 75.
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = duration::above_zero)]
    max_time: Duration,

    /// Little of everything, once: to see whether it works. Its figures mean nothing.
    #[arg(long)]
    quick: bool,
}

/// What can be measured by itself.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Uncontended pairs at 1, 16, 64 and 256 tasks, and the raw limits.
    Pairs,
    /// One key, 8 and 64 tasks of one client.
    OneKey,
    /// One key, 8 and 64 separate clients, and pollers.
    Clients,
    /// Hand-over after a while of quiet, and a raw PUBLISH.
    HandOver,
    /// Many leases held and renewed.
    Held,
}

/// Where the requests of a client run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// `connect`: on a thread of the client's own.
    Own,
    /// `connect_beside`: on the runtime of the caller.
    Beside,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Own => "connect on two workers",
            Place::Beside => "connect_beside on one thread",
        }
    }
}

/// What was measured, and on what.
struct Results {
    engine: String,
    place: &'static str,
    runs: u8,
    span: Duration,
    machine: Machine,
    rows: Vec<Row>,
    notes: Vec<&'static str>,
}

/// Told to end. Cheap to clone.
#[derive(Clone)]
struct Stop(watch::Receiver<bool>);

impl Stop {
    fn is_set(&self) -> bool {
        *self.0.borrow()
    }

    async fn set(mut self) {
        // Also when nobody can set it any more.
        let _ = self.0.wait_for(|set| *set).await;
    }
}

/// One measurement: what it may use.
struct Bench {
    target: Target,
    place: Place,
    stop: Stop,
    clients: Mutex<Vec<Tenure>>,
}

impl Bench {
    /// A client that is closed at the end, whichever way that comes.
    async fn connect(&self) -> tenure::Result<Tenure> {
        let tenure = self.target.connect(self.place).await?;
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).push(tenure.clone());
        Ok(tenure)
    }

    /// Gives everything back.
    async fn close(&self) -> tenure::Result<()> {
        let clients = std::mem::take(&mut *self.clients.lock().unwrap_or_else(PoisonError::into_inner));
        let closing = clients.into_iter().map(|client| tokio::spawn(client.close()));
        for one in closing.collect::<Vec<_>>() {
            // A panic would have been told; a runtime that ends has nothing left to close.
            one.await.unwrap_or(Ok(()))?;
        }
        Ok(())
    }
}

/// Why there is no result.
enum Ended {
    Signal(Signal),
    TooLong,
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Ended {
    fn from(error: E) -> Ended {
        Ended::Failed(error.into())
    }
}

/// Measures, and says how `tenure` should end.
pub(crate) fn run(mut args: BenchArgs) -> Exit {
    let url = match (EngineArgs { engine: args.url.take() }).choose() {
        Ok(url) => url,
        Err(what) => return say::because(Exit::Usage, &what),
    };
    if let Some(count) = args.held.iter().find(|count| !(1..=MOST_LEASES).contains(*count)) {
        return say::because(Exit::Usage, &format!("--held {count} is not between 1 and {MOST_LEASES}"));
    }
    let target = Target::of(url.secret());
    let outcome = measure_all(&args, &target);
    let clean = match &target.server {
        // A request that was under way may come after the first look.
        Some(server) => server.remove_all().and_then(|_| server.remove_all()).map(|_| ()),
        None => Ok(()),
    };
    match (outcome, clean) {
        (Ok(results), Ok(())) => print(&args, &results),
        (Ok(_), Err(error)) => {
            let what = format!("what was left on the server could not be removed: {error}");
            say::because(Exit::CouldNotRun, &what)
        }
        (Err(Ended::Signal(signal)), _) => Exit::of_signal(signal.as_raw()),
        (Err(Ended::TooLong), _) => {
            let what = format!("not done within --max-time {:?}; measure less with --only", args.max_time);
            say::because(Exit::NotAcquired, &what)
        }
        (Err(Ended::Failed(error)), _) => {
            let exit = error.downcast_ref::<tenure::Error>().map_or(Exit::CouldNotRun, Exit::of_error);
            say::because(exit, &format!("bench: {error}"))
        }
    }
}

fn print(args: &BenchArgs, results: &Results) -> Exit {
    if let Some(folder) = &args.plot {
        match plot::write(folder, &results.rows) {
            Ok(names) => say::line(&format!("written into {}: {}", folder.display(), names.join(", "))),
            Err(error) => {
                let what = format!("charts cannot be written into {}: {error}", folder.display());
                return say::because(Exit::CouldNotRun, &what);
            }
        }
    }
    let text = match (args.json, args.markdown) {
        (true, _) => show::lines(results),
        (_, true) => show::markdown(results),
        _ => show::text(results),
    };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Ok(()) => Exit::Own(0),
        Err(error) => say::because(Exit::CouldNotRun, &format!("the results cannot be written: {error}")),
    }
}

fn measure_all(args: &BenchArgs, target: &Target) -> std::result::Result<Results, Ended> {
    let control = Builder::new_current_thread().enable_all().build()?;
    control.block_on(async {
        let mut signals = Signals::catch()?;
        let (stop, stopped) = watch::channel(false);
        let stopped = Stop(stopped);
        let ended = tokio::select! {
            biased;
            signal = signals.next() => Err(Ended::Signal(signal)),
            () = tokio::time::sleep(args.max_time) => Err(Ended::TooLong),
            results = all_runs(args, target, &stopped) => results,
        };
        let _ = stop.send(true);
        // The measurement that was interrupted gives back what it holds; it ends when nobody can stop it.
        drop(stopped);
        let _ = tokio::time::timeout(GOODBYE, stop.closed()).await;
        ended
    })
}

async fn all_runs(args: &BenchArgs, target: &Target, stop: &Stop) -> std::result::Result<Results, Ended> {
    let place = if args.beside { Place::Beside } else { Place::Own };
    // A wrong URL is told of before anything else.
    let promises = {
        let tenure = target.connect(Place::Own).await?;
        let promises = tenure.promises().clone();
        tenure.close().await?;
        promises
    };
    let steps = plan::steps(args, target).await?;
    let runs = if args.quick { 1 } else { args.runs };
    let mut progress = Progress::of(steps.len() * usize::from(runs));
    let mut measured = Vec::new();
    for _ in 0..runs {
        let mut rows = Vec::new();
        for step in &steps {
            progress.step(&step.to_string());
            let ran = on_a_thread(step.clone(), target.clone(), place, stop.clone()).await;
            if ran.is_err() {
                progress.end();
            }
            rows.push(ran?);
        }
        add_ratios(&mut rows);
        measured.push(rows);
    }
    progress.end();
    let mut machine = Machine::here();
    if let Some(server) = &target.server {
        machine.0.push(("server", format!("redis {}", server.info("server", "redis_version")?)));
    }
    let mut notes = Vec::new();
    if target.server.is_none() {
        notes.push("Raw limits and pollers are measured with redis:// only.");
    }
    if !target.is_shared {
        notes.push("No separate clients: each client of this engine has a store of its own.");
    }
    let (rows, place) = (medians(&measured), place.name());
    Ok(Results {
        engine: promises.engine.to_owned(),
        place,
        runs,
        span: plan::span(args),
        machine,
        rows,
        notes,
    })
}

/// Carries out a step on a runtime of its own. If nobody waits for it any more, it goes on until it
/// has given back what it holds.
async fn on_a_thread(step: Step, target: Target, place: Place, stop: Stop) -> Result<Row> {
    let (done, outcome) = oneshot::channel();
    std::thread::Builder::new().name("tenure-bench".to_owned()).spawn(move || {
        let bench = Bench { target, place, stop: stop.clone(), clients: Mutex::default() };
        let _ = done.send(carry_out(&step, &bench));
        drop(stop);
    })?;
    outcome.await.map_err(|_| "the measurement panicked")?
}

fn carry_out(step: &Step, bench: &Bench) -> Result<Row> {
    let runtime = runtime(step, bench.place)?;
    let row = runtime.block_on(async {
        let row = tokio::select! {
            biased;
            () = bench.stop.clone().set() => Err("interrupted".into()),
            row = step.measure(bench) => row,
        };
        let closed = bench.close().await;
        let row = row?;
        closed?;
        Ok(row)
    });
    runtime.shutdown_timeout(GOODBYE);
    row
}

/// Separate clients are many on one runtime of two workers, also where they work beside the caller.
fn runtime(step: &Step, place: Place) -> std::io::Result<Runtime> {
    match place {
        Place::Beside if !step.has_many_connections() => Builder::new_current_thread().enable_all().build(),
        _ => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
    }
}
