//! `tenure who --watch`: what is held, and every change, until somebody ends it.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::{Snapshot, Who, take, worthwhile};
use crate::exit::Exit;
use crate::session::Session;
use crate::streams::{self, Ended};
use crate::{json, say};

/// No two looks follow each other faster.
const LEAST: Duration = Duration::from_millis(100);
/// How late a change of one key is seen that the engine tells nobody of.
const ONE_KEY: Duration = Duration::from_secs(1);
/// The same of a listing, which costs the engine more.
const LISTING: Duration = Duration::from_secs(2);

/// Shows what changes, and says how `tenure` should end. A look that fails ends it: a display that stands still
/// would look like one where nothing happens.
pub(super) async fn watch(args: &Who, session: &mut Session) -> Exit {
    let mut ends = match streams::ends(false) {
        Ok(ends) => ends,
        Err(error) => return say::because(Exit::Bug, &format!("no thread can be started: {error}")),
    };
    let most = if args.key.is_some() { ONE_KEY } else { LISTING };
    let mut last: Option<Snapshot> = None;
    loop {
        let mut round = async || {
            if let Some(snapshot) = &mut last {
                worthwhile(snapshot.wake.take(), LEAST, most).await;
            }
            let next = take(args, &session.tenure).await?;
            show(args, &session.engine, last.take(), &next).map_err(|error| streams::failed(&error))?;
            last = Some(next);
            Ok(())
        };
        let shown: Result<(), Exit> = tokio::select! {
            signal = session.signals.next() => return Exit::of_signal(signal.as_raw()),
            ended = &mut ends => return match ended {
                Ok(Ended::Output | Ended::Input) => streams::failed(&io::ErrorKind::BrokenPipe.into()),
                Err(_) => Exit::Bug,
            },
            shown = round() => shown,
        };
        if let Err(exit) = shown {
            return exit;
        }
    }
}

fn show(args: &Who, engine: &str, last: Option<Snapshot>, next: &Snapshot) -> io::Result<()> {
    if args.json {
        return changes(last, next);
    }
    let remark = next.remark(args, engine).map(|remark| format!("tenure: {remark}"));
    let table = next.table(args);
    let text = [Some(table).filter(|table| !table.is_empty()), remark].into_iter().flatten();
    let text = text.collect::<Vec<_>>().join("\n");
    if io::stdout().is_terminal() {
        return redraw(&text);
    }
    let is_like = |last: &Snapshot| {
        last.rows.len() == next.rows.len()
            && last.rows.iter().zip(&next.rows).all(|(one, other)| one.0 == other.0 && one.1.is_like(other.1))
    };
    match last {
        None => streams::print(&text),
        Some(last) if is_like(&last) => Ok(()),
        // Tables are told apart by an empty line.
        Some(_) => streams::print(&format!("\n{text}")),
    }
}

/// A line for each key that is not as it was.
fn changes(last: Option<Snapshot>, next: &Snapshot) -> io::Result<()> {
    let mut before = last.map(|last| last.rows).unwrap_or_default();
    for (key, row) in &next.rows {
        let is_new = before.remove(key).is_none_or(|last| !last.is_like(row));
        if is_new {
            streams::print(&json::line(row))?;
        }
    }
    for row in before.into_values() {
        streams::print(&json::line(&row.free()))?;
    }
    Ok(())
}

/// In place of what was there: line by line, so that it does not flicker.
fn redraw(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    // What does not fit is left out: it would move what is above.
    let size = rustix::termios::tcgetwinsize(&out).ok().filter(|size| size.ws_row > 1 && size.ws_col > 0);
    let (rows, columns) = size.map_or((24, 80), |size| (usize::from(size.ws_row), usize::from(size.ws_col)));
    out.write_all(b"\x1b[H")?;
    for line in text.lines().take(rows - 1) {
        let line: String = line.chars().take(columns).collect();
        write!(out, "{line}\x1b[K\r\n")?;
    }
    out.write_all(b"\x1b[J")?;
    out.flush()
}
