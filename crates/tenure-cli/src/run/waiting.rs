//! The line that a person at a terminal sees while the lock is somebody else's.

use std::future::Future;
use std::io::{IsTerminal, Write, stderr};
use std::pin::pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tenure::engine::Holder;
use tenure::{Key, Moment, Mutex, Tenure};
use tokio::time;

/// A lock that comes so soon needs no line.
const SOON: Duration = Duration::from_millis(250);
/// How often it is drawn at most.
const REDRAW: Duration = Duration::from_secs(1);
/// The most characters of a key that it shows.
const KEY_SHOWN: usize = 40;
const DAY: u64 = 86_400;

/// Acquires, and shows on a terminal who is in the way. Quiet where standard error is something else.
pub(crate) async fn shown<T>(
    tenure: &Tenure,
    mutex: &Mutex,
    key: &str,
    acquiring: impl Future<Output = T>,
) -> T {
    let Ok(key) = Key::new(key) else { return acquiring.await };
    if !stderr().is_terminal() {
        return acquiring.await;
    }
    let mut acquiring = pin!(acquiring);
    let began = Moment::now();
    let mut line = Line { drawn: false };
    let mut pause = SOON;
    loop {
        tokio::select! {
            biased;
            acquired = &mut acquiring => return acquired,
            () = time::sleep(pause) => {}
        }
        let view = tokio::select! {
            biased;
            acquired = &mut acquiring => return acquired,
            view = tenure.engine().look(&key) => view,
        };
        let holder = view.ok().and_then(|view| view.holders.into_iter().next());
        let waited = Moment::now().since(began);
        line.draw(&text(&key, tenure.promises().engine, holder.as_ref(), mutex.ahead(), waited));
        pause = REDRAW;
    }
}

fn text(key: &Key, engine: &str, holder: Option<&Holder>, ahead: Option<usize>, waited: Duration) -> String {
    let key: String = super::shown(key.as_str()).chars().take(KEY_SHOWN).collect();
    let mut text = format!("waiting {} for \"{key}\" on {engine}", span(waited.as_secs()));
    if let Some(holder) = holder {
        let host = holder.host.as_deref().map(super::shown);
        text.push_str(&format!("; held by {}", host.as_deref().unwrap_or("somebody")));
        if let Some(since) = holder.since_unix_ms {
            text.push_str(&format!(" {}", since_when(since / 1000)));
        }
    }
    match ahead {
        None => {}
        Some(0) => text.push_str("; next in the queue"),
        Some(ahead) => text.push_str(&format!("; {ahead} before us in the queue")),
    }
    text
}

/// By the holder's clock and ours, which may differ: for people only.
fn since_when(since: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (hour, minute, second) = (since % DAY / 3600, since % 3600 / 60, since % 60);
    format!("for {}, since {hour:02}:{minute:02}:{second:02} UTC", span(now.saturating_sub(since)))
}

fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / DAY, seconds % DAY / 3600, seconds % 3600 / 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, ..) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours:02}h"),
    }
}

/// One line of the terminal, gone when dropped.
struct Line {
    drawn: bool,
}

impl Line {
    fn draw(&mut self, text: &str) {
        let size = rustix::termios::tcgetwinsize(stderr()).ok();
        // A line that is full would wrap, and could not be taken back.
        let width = size.map_or(80, |size| usize::from(size.ws_col).max(20)) - 1;
        let text: String = format!("tenure: {text}").chars().take(width).collect();
        let _ = write!(stderr(), "\r\x1b[K{text}");
        self.drawn = true;
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.drawn {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        for (seconds, short) in [(5, "5s"), (65, "1m05s"), (3_660, "1h01m"), (90_000, "1d01h")] {
            assert_eq!(span(seconds), short);
        }
    }

    #[test]
    fn the_line_says_who_since_when_and_how_many_before_us() {
        let key = Key::new("jobs/nightly").unwrap();
        let holder = Holder {
            owner: None,
            mode: tenure::engine::Mode::Exclusive,
            remaining: Duration::ZERO,
            raw: None,
            host: Some("7@db\u{1b}".to_owned()),
            since_unix_ms: Some(1_700_000_000_000),
            value: Vec::new(),
        };
        let text = text(&key, "redis", Some(&holder), Some(2), Duration::from_secs(65));
        assert!(
            text.starts_with("waiting 1m05s for \"jobs/nightly\" on redis; held by 7@db\\u{1b} for "),
            "{text}"
        );
        assert!(text.ends_with("since 22:13:20 UTC; 2 before us in the queue"), "{text}");
    }
}
