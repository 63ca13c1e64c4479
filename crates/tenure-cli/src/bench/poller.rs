//! What most programs do today: `SET NX PX` each millisecond, then compare and delete. Each with a
//! connection and a thread of its own.

use std::time::{Duration, Instant};

use super::load::{Changes, Counted, Load, Window};
use super::raw::{Connection, request};
use super::target::Server;
use super::{Result, Stop};

const EACH: Duration = Duration::from_millis(1);

/// Blocks until it is over.
pub(super) fn measure(server: &Server, clients: usize, span: Duration, stop: &Stop) -> Result<Load> {
    let key = format!("{}poller", server.prefix);
    let connections: Vec<Connection> = (0..clients).map(|_| server.open()).collect::<Result<_>>()?;
    let (window, changes) = (Window::after_warming_up(span), Changes::new());
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (who, connection) in connections.into_iter().enumerate() {
            let (key, changes) = (&key, &changes);
            let thread = std::thread::Builder::new().name("poller".to_owned());
            threads
                .push(thread.spawn_scoped(scope, move || poll(who, connection, key, window, changes, stop))?);
        }
        let cpu = window.cpu_blocking(stop);
        let mut counted = Vec::new();
        for thread in threads {
            counted.push(thread.join().map_err(|_| "a poller panicked")??);
        }
        Load::of(&counted, &changes, window, cpu)
    })
}

fn poll(
    who: usize,
    mut connection: Connection,
    key: &str,
    window: Window,
    changes: &Changes,
    stop: &Stop,
) -> Result<Counted> {
    let (mut counted, value) = (Counted::new()?, format!("{who:032x}"));
    let hash = connection.load_release()?;
    let claim = request(&["SET", key, &value, "NX", "PX", "30000"]);
    let release = request(&["EVALSHA", &hash, "1", key, &value]);
    let mut asked = Instant::now();
    while !window.is_over(Instant::now()) && !stop.is_set() {
        if connection.flight(&claim, 1)?.first() != Some(&b'+') {
            std::thread::sleep(EACH);
            continue;
        }
        let granted = Instant::now();
        if window.contains(granted) {
            changes.entered(who);
            counted.count(granted - asked);
        }
        connection.flight(&release, 1)?;
        asked = Instant::now();
    }
    Ok(counted)
}
