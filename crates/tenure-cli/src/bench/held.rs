//! Many leases at a time: what renewing them costs, and how near any of them comes to its end.

use std::time::{Duration, Instant};

use tenure::{Lease, Tenure};
use tokio::task::JoinSet;

use super::figures::Figures;
use super::machine::{process_cpu, resident_bytes, thread_cpu};
use super::{Bench, Result};

const TASKS: usize = 64;
/// How often the remaining terms are read.
const LOOK: Duration = Duration::from_millis(500);

/// Acquires so many, watches them, and gives them back.
pub(super) async fn measure(
    bench: &Bench,
    count: usize,
    term: Duration,
    watched: Duration,
) -> Result<Figures> {
    let tenure = bench.connect().await?;
    let (memory, began) = (resident_bytes(), Instant::now());
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(acquire(bench.target.clone(), tenure.clone(), (task..count).step_by(TASKS), term));
    }
    let mut leases: Vec<Vec<Lease>> = Vec::new();
    while let Some(some) = tasks.join_next().await {
        leases.push(some??);
    }
    let acquired_in = began.elapsed();
    let grown = resident_bytes().saturating_sub(memory);

    let before = commands(bench)?;
    let (watching, cpu) = (Instant::now(), process_cpu());
    let (mut lowest, mut looking) = (term, Duration::ZERO);
    while watching.elapsed() < watched {
        tokio::time::sleep(LOOK.min(watched.saturating_sub(watching.elapsed()))).await;
        let cpu = thread_cpu();
        lowest = leases.iter().flatten().map(Lease::remaining).min().unwrap_or_default().min(lowest);
        looking += thread_cpu().saturating_sub(cpu);
    }
    let elapsed = watching.elapsed().as_secs_f64();
    let cpu = process_cpu().saturating_sub(cpu).saturating_sub(looking);
    let after = commands(bench)?;
    let lost = leases.iter().flatten().filter(|lease| !lease.is_held()).count();
    give_back(leases).await?;

    let mut figures = vec![
        ("acquired_in_ms", acquired_in.as_secs_f64() * 1e3),
        ("client_cpu_percent", cpu.as_secs_f64() / elapsed * 100.0),
        ("memory_mb", grown as f64 / 1e6),
        ("lowest_remaining_of_term", lowest.as_secs_f64() / term.as_secs_f64()),
        ("lost", lost as f64),
    ];
    if let (Some(before), Some(after)) = (before, after) {
        figures.push(("commands_per_s", (after - before) / elapsed));
    }
    Ok(figures)
}

async fn acquire(
    target: super::target::Target,
    tenure: Tenure,
    numbers: impl Iterator<Item = usize> + Send,
    term: Duration,
) -> tenure::Result<Vec<Lease>> {
    let mut leases = Vec::new();
    for n in numbers {
        leases.push(tenure.mutex(target.key(&format!("held:{n}"))).ttl(term).acquire().await?);
    }
    Ok(leases)
}

async fn give_back(leases: Vec<Vec<Lease>>) -> Result<()> {
    let mut tasks = JoinSet::new();
    for some in leases {
        tasks.spawn(async move {
            for lease in some {
                lease.release().await?;
            }
            Ok::<(), tenure::Error>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

/// All commands that the server ever carried out, those in scripts included.
fn commands(bench: &Bench) -> Result<Option<f64>> {
    let Some(server) = &bench.target.server else { return Ok(None) };
    Ok(server.info("stats", "total_commands_processed")?.parse().ok())
}
