//! Hand-over: from the call of `release` to the return of the waiter's `acquire`, after 20 to 70 ms
//! of quiet, beside a raw PUBLISH in the same state.

use std::time::{Duration, Instant};

use tenure::Tenure;
use tokio::task::JoinSet;

use super::figures::Figures;
use super::load::Times;
use super::raw::request;
use super::target::Server;
use super::{Bench, Result};

/// A hand-over and, on Redis, a raw PUBLISH, measured in turns. Milliseconds.
pub(super) async fn measure(bench: &Bench, count: usize) -> Result<Figures> {
    let holder = bench.connect().await?;
    // Where clients do not see each other it is a hand-over between two tasks of one.
    let waiter = if bench.target.is_shared { bench.connect().await? } else { holder.clone() };
    let key = bench.target.key("hand-over");
    let (mut handover, mut publish) = (Times::new()?, Times::new()?);
    for n in 0..count {
        let quiet = Duration::from_millis(20 + (n as u64 * 37) % 50);
        if let Some(server) = &bench.target.server {
            publish.record(in_a_task(raw_publish(server.clone(), quiet)).await?);
        }
        let once = one(holder.clone(), waiter.clone(), key.clone(), quiet);
        handover.record(in_a_task(once).await?);
    }
    let mut figures =
        vec![("hand_over_p50_ms", handover.quantile(0.5)), ("hand_over_p99_ms", handover.quantile(0.99))];
    if bench.target.server.is_some() {
        figures.push(("publish_p50_ms", publish.quantile(0.5)));
        figures.push(("publish_p99_ms", publish.quantile(0.99)));
        figures.push(("over_publish", handover.quantile(0.5) / publish.quantile(0.5)));
    }
    Ok(figures)
}

/// As in a service: not on the thread that blocks on the runtime.
async fn in_a_task<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let mut task = JoinSet::new();
    task.spawn(work);
    task.join_next().await.ok_or("the task is gone")??
}

async fn one(holder: Tenure, waiter: Tenure, key: String, quiet: Duration) -> Result<Duration> {
    let lease = holder.mutex(&key).acquire().await?;
    let lock = waiter.mutex(&key);
    let mut waiting = JoinSet::new();
    waiting.spawn(async move {
        let lease = lock.acquire().await?;
        let granted = Instant::now();
        lease.release().await?;
        Ok::<Instant, tenure::Error>(granted)
    });
    tokio::time::sleep(quiet).await;
    let released = Instant::now();
    lease.release().await?;
    let granted = waiting.join_next().await.ok_or("the waiter is gone")???;
    Ok(granted.saturating_duration_since(released))
}

/// The same way without a lock: a task publishes, another hears of it; both on this runtime.
async fn raw_publish(server: Server, quiet: Duration) -> Result<Duration> {
    let channel = format!("{}channel", server.prefix);
    let mut subscriber = server.open()?.into_tokio()?;
    subscriber.ask(&request(&["SUBSCRIBE", &channel])).await?;
    let mut listening = JoinSet::new();
    listening.spawn(async move {
        subscriber.hear().await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Instant::now())
    });
    let mut publisher = server.open()?.into_tokio()?;
    publisher.ask(&request(&["PING"])).await?;
    tokio::time::sleep(quiet).await;
    let sent = Instant::now();
    publisher.ask(&request(&["PUBLISH", &channel, "x"])).await?;
    let heard = listening.join_next().await.ok_or("the subscriber is gone")???;
    Ok(heard.saturating_duration_since(sent))
}
