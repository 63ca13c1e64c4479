//! `tenure engines`: what the engines of this build promise.

use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tenure::engine::{self, Known};
use tenure::{Promises, Wakes};

use crate::exit::Exit;
use crate::{columns, json, streams};

/// Examples and codes, as `--help` shows them.
pub(crate) const HELP: &str = "\
Examples:
  tenure engines
  tenure engines --json | jq -r 'select(.fifo).name'

FIFO: clients are served in the order in which they came. NOTES: a record can be kept beside a key. Nothing is
asked of any server: the longest term may be shorter there, if its URL says so.

Exit codes:
  0    shown
  64   wrong usage";

const WIDTH: usize = 100;
const DAY: u64 = 86_400;

/// `tenure engines`.
#[derive(Args)]
pub(crate) struct Engines {
    /// Write one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,
}

/// An engine as programs read it.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    urls: &'static [&'static str],
    modes: Vec<&'static str>,
    fifo: bool,
    wakes: &'static str,
    notes: bool,
    token: &'static str,
    exclusion: &'static str,
    shortest_term_ms: u64,
    longest_term_ms: u64,
    longest_queue: usize,
}

impl From<Known> for Row {
    fn from(known: Known) -> Row {
        let Promises { engine, shared, permits, fifo, wakes, notes, token, exclusion, .. } = known.promises;
        let modes = [("exclusive", true), ("shared", shared), ("permits", permits)];
        Row {
            name: engine,
            urls: known.urls,
            modes: modes.into_iter().filter(|(_, has)| *has).map(|(mode, _)| mode).collect(),
            fifo,
            wakes: match wakes {
                Wakes::Push => "push",
                Wakes::Watch => "watch",
                _ => "poll",
            },
            notes,
            token,
            exclusion,
            shortest_term_ms: json::millis(known.promises.shortest_term),
            longest_term_ms: json::millis(known.promises.longest_term),
            longest_queue: known.promises.longest_queue,
        }
    }
}

/// Shows them, and says how `tenure` should end.
pub(crate) fn engines(args: &Engines) -> Exit {
    let rows: Vec<Row> = engine::known().into_iter().map(Row::from).collect();
    let text = match args.json {
        true => rows.iter().map(json::line).collect::<Vec<_>>().join("\n"),
        false => table(&rows),
    };
    match streams::print(&text) {
        Ok(()) => Exit::Own(0),
        Err(error) => streams::failed(&error),
    }
}

/// The short promises side by side, then those in words.
fn table(rows: &[Row]) -> String {
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let headings = ["NAME", "MODES", "FIFO", "WAKES", "NOTES", "SHORTEST", "LONGEST", "QUEUE"];
    let mut lines = vec![headings.map(str::to_owned)];
    lines.extend(rows.iter().map(|row| {
        let (shortest, longest) = (term(row.shortest_term_ms), term(row.longest_term_ms));
        let queue = row.longest_queue.to_string();
        let (fifo, notes) = (yes(row.fifo), yes(row.notes));
        [
            row.name.to_owned(),
            row.modes.join(", "),
            fifo,
            row.wakes.to_owned(),
            notes,
            shortest,
            longest,
            queue,
        ]
    }));
    let mut text = columns::align(&lines).join("\n");
    for row in rows {
        text.push_str(&format!("\n\n{}", row.name));
        text.push_str(&format!(
            "\n{}",
            columns::wrap(&format!("URL: {}", row.urls.join(" or ")), "  ", WIDTH)
        ));
        let exclusion = if row.exclusion.is_empty() { "nothing" } else { row.exclusion };
        for (what, words) in [("Tokens grow because", row.token), ("Two can hold a key after", exclusion)] {
            text.push_str(&format!("\n{}", columns::wrap(&format!("{what}: {words}"), "  ", WIDTH)));
        }
    }
    text
}

fn term(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0 => format!("{millis}ms"),
        seconds if seconds >= DAY => format!("{}d", seconds / DAY),
        _ => format!("{:?}", Duration::from_secs(seconds)),
    }
}
