//! Uncontended pairs: each task acquires and releases a key of its own, through one client.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::{Place, Result};

/// How fast, and at what cost to the client.
#[derive(Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) pairs: f64,
    pub(crate) cpu_us: f64,
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.0}/s at {:.2} us CPU", self.pairs, self.cpu_us)
    }
}

pub(crate) async fn measure(place: Place, server: SocketAddr, tasks: usize, span: Duration) -> Result<Rate> {
    let tenure = place.connect(server).await?;
    // Warm up, so that connecting and uploading scripts does not count.
    run(&tenure, tasks, Duration::from_millis(200)).await?;
    let (began, cpu) = (Instant::now(), process_cpu());
    let pairs = run(&tenure, tasks, span).await?;
    let (elapsed, cpu) = (began.elapsed(), process_cpu() - cpu);
    tenure.close().await?;
    let pairs = pairs as f64;
    Ok(Rate { pairs: pairs / elapsed.as_secs_f64(), cpu_us: cpu.as_secs_f64() * 1e6 / pairs })
}

async fn run(tenure: &tenure::Tenure, tasks: usize, span: Duration) -> Result<u64> {
    let until = Instant::now() + span;
    let mut running = Vec::new();
    for n in 0..tasks {
        let lock = tenure.mutex(format!("bench:{n}"));
        running.push(tokio::spawn(async move {
            let mut pairs = 0;
            while Instant::now() < until {
                lock.acquire().await?.release().await?;
                pairs += 1;
            }
            Ok::<u64, tenure::Error>(pairs)
        }));
    }
    let mut pairs = 0;
    for task in running {
        pairs += task.await??;
    }
    Ok(pairs)
}

/// The CPU time of this process so far; the server is another process.
pub(crate) fn process_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let nanos = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}
