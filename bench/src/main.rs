//! Tenure on Redis against the raw limits of the same server, in one run.
//!
//! `plain`: `SET NX PX`, then a compare-and-delete script, hand-pipelined at depth 64; no token.
//! `replay`: the very bytes that the engine sends for 64 keys, hand-pipelined at depth 64.
//! Absolute figures depend on the machine; the ratios are what counts.

mod handover;
mod held;
mod pairs;
mod raw;
mod tap;

use std::net::SocketAddr;
use std::time::Duration;

use clap::Parser;
use tap::Bytes;
use tenure::Tenure;
use tenure_testkit::server::{RedisOptions, RedisServer};
use tokio::runtime::{Builder, Runtime};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// How many requests the raw limits keep under way.
const DEPTH: usize = 64;

/// Measures the Redis engine against the raw limits of the same server.
#[derive(Parser)]
struct Options {
    /// How often everything is measured; the median ratio is reported.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// How long each measurement takes, in milliseconds.
    #[arg(long, default_value_t = 1500)]
    millis: u64,
    /// How many hand-overs are measured in each run.
    #[arg(long, default_value_t = 100)]
    handovers: usize,
    /// Instead of all that: hold so many leases at a time for 20 s.
    #[arg(long)]
    held: Option<usize>,
}

/// Where the requests of a client run.
#[derive(Clone, Copy)]
enum Place {
    /// `connect`, used from a multi-thread runtime with two workers: what a service does.
    OwnThread,
    /// `connect_beside`, on a current-thread runtime.
    Beside,
}

impl Place {
    const ALL: [Place; 2] = [Place::OwnThread, Place::Beside];

    fn runtime(self) -> std::io::Result<Runtime> {
        match self {
            Place::OwnThread => Builder::new_multi_thread().worker_threads(2).enable_all().build(),
            Place::Beside => Builder::new_current_thread().enable_all().build(),
        }
    }

    async fn connect(self, server: SocketAddr) -> tenure::Result<Tenure> {
        let url = format!("redis://{server}");
        match self {
            Place::OwnThread => tenure::connect(url).await,
            Place::Beside => tenure::connect_beside(url).await,
        }
    }
}

fn main() -> Result<()> {
    let options = Options::parse();
    let server = RedisServer::start(RedisOptions { append_only: false, ..RedisOptions::default() })?;
    let address = server.address();
    if let Some(count) = options.held {
        return Place::OwnThread.runtime()?.block_on(held::measure(address, count));
    }
    let bytes = Place::OwnThread.runtime()?.block_on(tap::record(address, DEPTH))?;
    let mut measured: [Vec<Figures>; 2] = [Vec::new(), Vec::new()];
    for run in 1..=options.runs {
        for (place, measured) in Place::ALL.into_iter().zip(&mut measured) {
            let figures = measure(place, address, &bytes, &options)?;
            println!("run {run}, {}: {figures}", place.name());
            measured.push(figures);
        }
    }
    for (place, measured) in Place::ALL.into_iter().zip(&measured) {
        report(place, measured);
    }
    Ok(())
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::OwnThread => "connect, 2 workers",
            Place::Beside => "connect_beside, 1 thread",
        }
    }
}

/// What one run measured.
#[derive(Clone, Copy)]
struct Figures {
    plain: f64,
    replay: f64,
    at_64: pairs::Rate,
    at_256: pairs::Rate,
    publish: Duration,
    handover: Duration,
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "plain {:.0}/s, replay {:.0}/s, 64 tasks {}, 256 tasks {}, PUBLISH p50 {:?}, hand-over p50 {:?}",
            self.plain, self.replay, self.at_64, self.at_256, self.publish, self.handover
        )
    }
}

fn measure(place: Place, server: SocketAddr, bytes: &Bytes, options: &Options) -> Result<Figures> {
    let span = Duration::from_millis(options.millis);
    let runtime = place.runtime()?;
    let plain = raw::plain(server, DEPTH, span)?;
    let at_64 = runtime.block_on(pairs::measure(place, server, 64, span))?;
    let replay = raw::replay(server, bytes, span)?;
    let at_256 = runtime.block_on(pairs::measure(place, server, 256, span))?;
    let (publish, handover) = runtime.block_on(handover::measure(place, server, options.handovers))?;
    Ok(Figures { plain, replay, at_64, at_256, publish, handover })
}

fn report(place: Place, measured: &[Figures]) {
    let median = |of: &dyn Fn(&Figures) -> f64| {
        let mut values: Vec<f64> = measured.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let line = |name: &str, value: f64, unit: &str, goal: &str| {
        println!("{name:<34} {value:>6.2} {unit:<3} goal {goal}")
    };
    println!("\n{}: median of {} runs, ratios within one run", place.name(), measured.len());
    line("64 tasks / replay", median(&|f| f.at_64.pairs / f.replay), "x", ">= 1.1");
    line("64 tasks / plain", median(&|f| f.at_64.pairs / f.plain), "x", ">= 0.8");
    line("256 tasks / replay", median(&|f| f.at_256.pairs / f.replay), "x", ">= 1.1");
    line("256 tasks / plain", median(&|f| f.at_256.pairs / f.plain), "x", ">= 0.8");
    line("client CPU per pair at 64 tasks", median(&|f| f.at_64.cpu_us), "us", "-");
    line("client CPU per pair at 256 tasks", median(&|f| f.at_256.cpu_us), "us", "< 6");
    line(
        "hand-over p50 / PUBLISH p50",
        median(&|f| f.handover.as_secs_f64() / f.publish.as_secs_f64()),
        "x",
        "<= 1.8",
    );
}
