//! Hand-over: from the call of `release` to the return of the waiter's `acquire`, after 20 to 70 ms
//! of quiet, beside a raw PUBLISH in the same state.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tenure::Tenure;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::raw::request;
use crate::{Place, Result};

/// The medians of a raw PUBLISH and of a hand-over, measured in turns.
pub(crate) async fn measure(place: Place, server: SocketAddr, count: usize) -> Result<(Duration, Duration)> {
    let holder = place.connect(server).await?;
    let waiter = place.connect(server).await?;
    let (mut publish, mut handover) = (Histogram::<u64>::new(3)?, Histogram::<u64>::new(3)?);
    for n in 0..count {
        let quiet = Duration::from_millis(20 + (n as u64 * 37) % 50);
        // In tasks of their own, as in a service: not on the thread that blocks on the runtime.
        publish.record(micros(tokio::spawn(raw_publish(server, quiet)).await??))?;
        handover.record(micros(tokio::spawn(one(holder.clone(), waiter.clone(), quiet)).await??))?;
    }
    waiter.close().await?;
    holder.close().await?;
    let median = |histogram: &Histogram<u64>| Duration::from_micros(histogram.value_at_quantile(0.5));
    Ok((median(&publish), median(&handover)))
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

async fn one(holder: Tenure, waiter: Tenure, quiet: Duration) -> Result<Duration> {
    let lease = holder.mutex("bench:handover").acquire().await?;
    let lock = waiter.mutex("bench:handover");
    let waiting = tokio::spawn(async move {
        let lease = lock.acquire().await?;
        let granted = Instant::now();
        lease.release().await?;
        Ok::<Instant, tenure::Error>(granted)
    });
    tokio::time::sleep(quiet).await;
    let released = Instant::now();
    lease.release().await?;
    Ok(waiting.await??.saturating_duration_since(released))
}

/// The same way without a lock: a task publishes, another hears of it; both on this runtime.
async fn raw_publish(server: SocketAddr, quiet: Duration) -> Result<Duration> {
    let mut subscriber = connect(server).await?;
    ask(&mut subscriber, &["SUBSCRIBE", "bench:channel"]).await?;
    let listening = tokio::spawn(async move {
        let mut buffer = [0; 256];
        let read = subscriber.read(&mut buffer).await?;
        Ok::<_, std::io::Error>((read, Instant::now()))
    });
    let mut publisher = connect(server).await?;
    ask(&mut publisher, &["PING"]).await?;
    tokio::time::sleep(quiet).await;
    let sent = Instant::now();
    ask(&mut publisher, &["PUBLISH", "bench:channel", "x"]).await?;
    let (_, heard) = listening.await??;
    Ok(heard.saturating_duration_since(sent))
}

async fn connect(server: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(server).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn ask(stream: &mut TcpStream, words: &[&str]) -> Result<()> {
    stream.write_all(&request(words)).await?;
    let read = stream.read(&mut [0; 256]).await?;
    if read == 0 { Err("the server closed the connection".into()) } else { Ok(()) }
}
