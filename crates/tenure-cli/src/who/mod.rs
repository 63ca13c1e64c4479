//! `tenure who`: who holds what.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use futures_util::StreamExt as _;
use futures_util::stream;
use tenure::engine::View;
use tenure::{Key, Tenure};
use tokio::time;

use crate::engine_url::EngineArgs;
use crate::exit::Exit;
use crate::session::{Session, shown};
use crate::streams;
use crate::{json, say};

mod row;
mod table;
mod watch;

use row::Row;

/// Keys that are looked at together.
const TOGETHER: usize = 64;

/// Examples and codes, as `--help` shows them.
pub(crate) const HELP: &str = "\
Examples:
  tenure who                               all that is held
  tenure who jobs/nightly                  one key
  tenure who --starts-with jobs/ --watch   go on showing changes until Ctrl-C
  tenure who --json | jq -r .key           for programs: one JSON object a line
  tenure who --physical jobs/nightly       also the names in the store, to look at it by hand

SINCE is by the holder's clock. TOKEN is the store's own number of the grant (raw_token of `tenure hold`), where
the store keeps it with the holder. That nothing is held is said on standard error and is no failure.

Exit codes:
  0    shown, or nothing is held
  64   wrong usage or input
  69   the engine could not be reached or refused, or the key holds something that is no lock
  128 + a signal's number: ended by it; 141 if nobody read the output";

/// `tenure who`.
#[derive(Args)]
pub(crate) struct Who {
    #[command(flatten)]
    engine: EngineArgs,

    /// Only this key. Also shown if its holder is no client of Tenure's.
    #[arg(value_name = "KEY", conflicts_with = "starts_with")]
    key: Option<String>,

    /// Only keys that start with this.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    starts_with: String,

    /// At most so many keys.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    limit: usize,

    /// Write one JSON object a line instead of a table.
    #[arg(long)]
    json: bool,

    /// Also show under which names the store keeps each key.
    #[arg(long)]
    physical: bool,

    /// Go on showing what changes, until a signal comes or nobody reads it any more.
    #[arg(long)]
    watch: bool,
}

/// What is held at a time, by key. A key that was asked for is there even if nobody holds it.
pub(crate) struct Snapshot {
    rows: BTreeMap<Key, Row>,
    /// Whether the limit left something out.
    complete: bool,
    /// Of a key that was asked for: when looking again may be worthwhile.
    wake: Option<tenure::engine::Wake>,
}

/// Shows it, and says how `tenure` should end.
pub(crate) async fn who(args: Who) -> Exit {
    let mut session = match Session::open(&args.engine, args.key.as_deref()).await {
        Ok(session) => session,
        Err(exit) => return exit,
    };
    let exit =
        if args.watch { watch::watch(&args, &mut session).await } else { once(&args, &mut session).await };
    session.close(exit).await
}

async fn once(args: &Who, session: &mut Session) -> Exit {
    let snapshot = tokio::select! {
        signal = session.signals.next() => return Exit::of_signal(signal.as_raw()),
        taken = take(args, &session.tenure) => match taken {
            Ok(snapshot) => snapshot,
            Err(exit) => return exit,
        },
    };
    let text = if args.json { snapshot.lines(args) } else { snapshot.table(args) };
    if !text.is_empty()
        && let Err(error) = streams::print(&text)
    {
        return streams::failed(&error);
    }
    if let Some(remark) = snapshot.remark(args, &session.engine) {
        say::line(&remark);
    }
    Exit::Own(0)
}

/// Looks at the key, or at all that are held.
async fn take(args: &Who, tenure: &Tenure) -> Result<Snapshot, Exit> {
    let failed = |error: tenure::Error| say::because(Exit::of_error(&error), &error.to_string());
    let engine = tenure.promises().engine;
    let row = |key: &Key, view: &View| (key.clone(), Row::of(key, engine, view, args.physical));
    if let Some(name) = &args.key {
        let key = Key::new(name).map_err(failed)?;
        let view = tenure.look(&key).await.map_err(failed)?;
        let rows = [row(&key, &view)].into();
        return Ok(Snapshot { rows, complete: true, wake: Some(view.wake) });
    }
    let listing = tenure.held(&args.starts_with, args.limit).await.map_err(failed)?;
    let looks = listing.keys.iter().map(|key| async move { (key, tenure.look(key).await) });
    let mut looks = stream::iter(looks).buffered(TOGETHER);
    let mut rows = BTreeMap::new();
    while let Some((key, view)) = looks.next().await {
        let view = match view {
            Ok(view) => view,
            // It became something else since it was listed.
            Err(error) if error.kind() == tenure::ErrorKind::NotALock => continue,
            Err(error) => return Err(failed(error)),
        };
        // It may have been given back since it was listed.
        if !view.holders.is_empty() {
            rows.extend([row(key, &view)]);
        }
    }
    Ok(Snapshot { rows, complete: listing.complete, wake: None })
}

impl Snapshot {
    fn lines(&self, _args: &Who) -> String {
        self.rows.values().map(json::line).collect::<Vec<_>>().join("\n")
    }

    fn table(&self, args: &Who) -> String {
        let shown: Vec<&Row> =
            self.rows.values().filter(|row| args.physical || !row.holders.is_empty()).collect();
        if shown.is_empty() { String::new() } else { table::of(&shown) }
    }

    /// What the table does not say.
    fn remark(&self, args: &Who, engine: &str) -> Option<String> {
        if !self.complete {
            let limit = args.limit;
            return Some(format!(
                "only {limit} keys are shown, there are more; say --starts-with or --limit"
            ));
        }
        if self.rows.values().any(|row| !row.holders.is_empty()) {
            return None;
        }
        let what = match &args.key {
            Some(key) => format!("nobody holds \"{}\"", shown(key)),
            None if args.starts_with.is_empty() => "nothing is held".to_owned(),
            None => format!("nothing is held that starts with \"{}\"", shown(&args.starts_with)),
        };
        Some(format!("{what} on {engine}"))
    }
}

/// Waits until looking again may be worthwhile: for a change, but neither too short nor too long.
async fn worthwhile(wake: Option<tenure::engine::Wake>, least: Duration, most: Duration) {
    time::sleep(least).await;
    if let Some(wake) = wake {
        let _ = time::timeout(most.saturating_sub(least), wake).await;
    } else {
        time::sleep(most.saturating_sub(least)).await;
    }
}
