//! Many leases at a time: what renewing them costs, and how near any of them comes to its end.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::Result;
use crate::pairs::process_cpu;

/// Short, so that every lease is renewed several times while it is watched.
const TERM: Duration = Duration::from_secs(9);
const WATCHED: Duration = Duration::from_secs(20);
const TASKS: usize = 64;

pub(crate) async fn measure(server: SocketAddr, count: usize) -> Result<()> {
    let tenure = tenure::connect(format!("redis://{server}")).await?;
    let began = Instant::now();
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let tenure = tenure.clone();
        tasks.push(tokio::spawn(async move {
            let mut leases = Vec::new();
            for n in (task..count).step_by(TASKS) {
                leases.push(tenure.mutex(format!("bench:held:{n}")).ttl(TERM).acquire().await?);
            }
            Ok::<_, tenure::Error>(leases)
        }));
    }
    let mut leases = Vec::new();
    for task in tasks {
        leases.extend(task.await??);
    }
    println!("{} leases acquired in {:.2?}", leases.len(), began.elapsed());

    let (watching, cpu) = (Instant::now(), process_cpu());
    let mut lowest = TERM;
    while watching.elapsed() < WATCHED {
        tokio::time::sleep(Duration::from_millis(500)).await;
        lowest = leases.iter().map(tenure::Lease::remaining).min().unwrap_or_default().min(lowest);
    }
    let lost = leases.iter().filter(|lease| !lease.is_held()).count();
    let share = (process_cpu() - cpu).as_secs_f64() / watching.elapsed().as_secs_f64();
    println!("held for {WATCHED:?} with a term of {TERM:?}: {lost} lost, lowest remaining {lowest:.2?}");
    println!("client CPU while holding: {:.1} % of one core", share * 100.0);
    drop(leases);
    tenure.close().await?;
    Ok(())
}
