//! `tenure release --force`: takes a lock from its holder.

use std::io::{self, IsTerminal, Write};

use clap::Args;
use tenure::engine::{Holder, View};
use tenure::{ErrorKind, Tenure};
use tokio::sync::oneshot;

use crate::engine_url::EngineArgs;
use crate::exit::Exit;
use crate::host::{self, Host};
use crate::session::{Session, shown};
use crate::signals::Signals;
use crate::{json, say, streams};

/// Examples and codes, as `--help` shows them.
pub(crate) const HELP: &str = "\
Examples:
  tenure release --force jobs/nightly         shows the holder and asks first, on a terminal
  tenure release --force --yes jobs/nightly   does not ask

Whoever waits gets the lock at once, with a greater token. A holder that is alive learns of it with its next
renewal, within a third of its term, and works on until then: stop it first where you can. A holder that
only stopped its work needs no force; its lock ends with its term.

Exit codes:
  0    released, or nobody held it
  64   wrong usage or input, such as no --force
  69   the engine could not be reached or refused, or the holder is no client of Tenure's
  130  the question was answered with no (128 + the signal's number if one came)";

/// `tenure release`.
#[derive(Args)]
pub(crate) struct Release {
    #[command(flatten)]
    engine: EngineArgs,

    /// Yes, take it from a holder that may be at work. There is no release without it: only who holds a
    /// lock can give it back.
    #[arg(long)]
    force: bool,

    /// Do not ask, also on a terminal.
    #[arg(short, long)]
    yes: bool,

    /// The name of the lock.
    #[arg(value_name = "KEY")]
    key: String,
}

/// Releases it, and says how `tenure` should end.
pub(crate) async fn release(args: Release) -> Exit {
    if !args.force {
        let what = "only the holder gives a lock back, and a holder that died loses it with its term; to take \
                    it from a holder that may be at work, say --force; `tenure who` shows who holds what";
        return say::because(Exit::Usage, what);
    }
    let mut session = match Session::open(&args.engine, Some(&args.key)).await {
        Ok(session) => session,
        Err(exit) => return exit,
    };
    let Session { tenure, signals, engine } = &mut session;
    let exit = match forced(&args, tenure, signals, engine).await {
        Ok(exit) => exit,
        Err(error) => say::because(Exit::of_error(&error), &error.to_string()),
    };
    session.close(exit).await
}

async fn forced(
    args: &Release,
    tenure: &Tenure,
    signals: &mut Signals,
    engine: &str,
) -> tenure::Result<Exit> {
    let key = shown(&args.key);
    let seen = tokio::select! {
        signal = signals.next() => return Ok(Exit::of_signal(signal.as_raw())),
        seen = tenure.look(&args.key) => seen?,
    };
    if seen.holders.is_empty() {
        say::line(&format!("nobody holds \"{key}\" on {engine}"));
        return Ok(Exit::Own(0));
    }
    if !args.yes && io::stdin().is_terminal() && io::stderr().is_terminal() {
        match ask(&question(&key, engine, &seen), signals).await {
            Ok(true) => {}
            Ok(false) => return Ok(say::because(Exit::of_signal(2), &format!("\"{key}\" was left alone"))),
            Err(exit) => return Ok(exit),
        }
    }
    // What has been asked for is carried out, whatever comes now.
    let gone =
        tenure.force_release(&args.key, &seen.holders).await.map_err(|error| told_where(error, &seen))?;
    if gone.is_empty() {
        say::line(&format!("\"{key}\" had been given back already"));
        return Ok(Exit::Own(0));
    }
    for holder in &gone {
        if let Err(error) = streams::print(&format!("released \"{key}\", held by {}", about(holder))) {
            return Ok(streams::failed(&error));
        }
    }
    say::line("a holder that is alive learns of it within a third of its term, and may work on until then");
    Ok(Exit::Own(0))
}

/// Where a foreign hold is found by hand.
fn told_where(error: tenure::Error, seen: &View) -> tenure::Error {
    match (error.kind(), seen.physical.first()) {
        (ErrorKind::NotALock, Some(name)) => error.advice(format!(
            "make sure that it is gone, then delete \"{}\" in the store by hand",
            shown(name)
        )),
        _ => error,
    }
}

fn question(key: &str, engine: &str, seen: &View) -> String {
    let mut text = format!("\"{key}\" on {engine} is held by\n");
    for holder in &seen.holders {
        text.push_str(&format!("  {}\n", about(holder)));
    }
    let waiting = match seen.waiters.len() {
        0 => "Nobody waits for it.".to_owned(),
        1 => "One waits for it.".to_owned(),
        many => format!("{many} wait for it."),
    };
    text + &format!("{waiting} Its holder may be at work. Take it away? [y/N] ")
}

/// A holder, for people.
fn about(holder: &Holder) -> String {
    let host = match (Host::of_holder(holder), holder.owner) {
        (Host { host: Some(host), pid: Some(pid) }, _) => format!("process {pid} on {}", shown(&host)),
        (Host { host: Some(host), pid: None }, _) => shown(&host),
        (_, Some(owner)) => format!("owner {owner}"),
        (_, None) => "no client of Tenure's".to_owned(),
    };
    let since = holder.since_unix_ms.and_then(json::stamp).map(|since| format!(", since {since}"));
    let left = holder.remaining.as_secs();
    let mode = host::mode(holder.mode);
    format!("{host}{}, {mode}, {left}s left unless renewed", since.unwrap_or_default())
}

/// Asks on the terminal. Anything but a yes is a no.
async fn ask(question: &str, signals: &mut Signals) -> Result<bool, Exit> {
    let _ = write!(io::stderr(), "{question}");
    let (tell, told) = oneshot::channel();
    // A thread: a terminal cannot be waited for otherwise.
    let reading = std::thread::Builder::new().name("tenure-answer".to_owned()).spawn(move || {
        let mut answer = String::new();
        let _ = io::stdin().read_line(&mut answer);
        let _ = tell.send(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"));
    });
    if let Err(error) = reading {
        return Err(say::because(Exit::Bug, &format!("no thread can be started: {error}")));
    }
    tokio::select! {
        signal = signals.next() => {
            let _ = writeln!(io::stderr());
            Err(Exit::of_signal(signal.as_raw()))
        }
        yes = told => Ok(yes.unwrap_or(false)),
    }
}
