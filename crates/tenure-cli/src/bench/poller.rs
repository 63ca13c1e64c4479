//! What most programs do today: `SET NX PX` each millisecond, then compare and delete. Each with a
//! connection of its own, in tasks on the same runtime as our clients.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::load::{Changes, Counted, Load, Window, collect};
use super::raw::{AsyncConnection, request};
use super::{Bench, Result};

const EACH: Duration = Duration::from_millis(1);

pub(super) async fn measure(bench: &Bench, clients: usize, span: Duration) -> Result<Load> {
    let server = bench.target.server.as_ref().ok_or("there is no server to ask")?;
    let mut connections = Vec::new();
    for _ in 0..clients {
        let mut connection = server.open()?;
        let hash = connection.load_release()?;
        connections.push((connection.into_tokio()?, hash));
    }
    let (window, changes) = (Window::after_warming_up(span), Changes::new());
    let mut tasks = JoinSet::new();
    for (who, (connection, hash)) in connections.into_iter().enumerate() {
        let key = format!("{}poller", server.prefix);
        tasks.spawn(poll(who, connection, hash, key, window, changes.clone()));
    }
    collect(tasks, &changes, window).await
}

async fn poll(
    who: usize,
    mut connection: AsyncConnection,
    hash: String,
    key: String,
    window: Window,
    changes: Changes,
) -> Result<Counted> {
    let (mut counted, value) = (Counted::new()?, format!("{who:032x}"));
    let claim = request(&["SET", &key, &value, "NX", "PX", "30000"]);
    let release = request(&["EVALSHA", &hash, "1", &key, &value]);
    let mut asked = Instant::now();
    while !window.is_over(Instant::now()) {
        if !connection.ask(&claim).await?.starts_with(b"+") {
            tokio::time::sleep(EACH).await;
            continue;
        }
        let granted = Instant::now();
        if window.contains(granted) {
            changes.entered(who);
            counted.count(granted - asked);
        }
        connection.ask(&release).await?;
        asked = Instant::now();
    }
    Ok(counted)
}
