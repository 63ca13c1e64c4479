//! `tenure run`: a command under a lock.

use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use clap::Args;
use tenure::{Key, Lease, LossCause, Moment, Mutex, Released, Tenure};
use tokio::time;

use crate::child::Child;
use crate::engine_url::{EngineArgs, Source};
use crate::exit::Exit;
use crate::signals::Signals;
use crate::{duration, say};

/// How long a command that lost its lock may take to end after it was asked to, unless validity
/// ends before that.
const GRACE: Duration = Duration::from_secs(2);
/// Killing takes a moment; it happens this long before validity ends.
const KILL_AHEAD: Duration = Duration::from_millis(20);
/// How long saying goodbye to the engine may take when nothing depends on it any more.
const GOODBYE: Duration = Duration::from_secs(2);
/// How often it is looked whether a lease has its full term.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// `tenure run`.
#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    /// How long the lock lasts unless renewed; it is renewed as long as the command runs. Unless
    /// said: the ttl of the URL, or 30s.
    #[arg(long, value_name = "DURATION", value_parser = duration::above_zero, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,

    /// Wait at most so long for the lock; 0 tries once. Waits for ever unless said.
    #[arg(long, value_name = "DURATION", conflicts_with = "no_wait", value_parser = duration::any,
          allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,

    /// Try once and do not wait.
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// Say on standard error which engine is used and when the lock is granted and released.
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// The name of the lock: 1 to 1,024 bytes of UTF-8.
    #[arg(value_name = "KEY")]
    pub(crate) key: String,

    /// The command and its arguments, after `--`.
    #[arg(value_name = "COMMAND", last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

/// Runs it, and says how `tenure` should end.
pub(crate) async fn run(args: Run) -> Exit {
    let chosen = Key::new(&args.key).map_err(|error| error.to_string());
    let url = match chosen.and_then(|_| args.engine.choose()) {
        Ok(url) => url,
        Err(what) => return not_run(Exit::Usage, &what),
    };
    // Somebody who typed no URL has to be told where a wrong one came from.
    let from = if url.source == Source::Option { String::new() } else { format!("{}: ", url.source) };
    let mut signals = match Signals::catch() {
        Ok(signals) => signals,
        Err(error) => return say::because(Exit::Bug, &format!("signals cannot be caught: {error}")),
    };
    if args.verbose {
        say::line(&format!("engine {url} (from {})", url.source));
    }
    let tenure = tokio::select! {
        connected = tenure::connect(url.secret()) => match connected {
            Ok(tenure) => tenure,
            Err(error) => return not_run(Exit::of_error(&error), &format!("{from}{error}")),
        },
        signal = signals.next() => return Exit::of_signal(signal.as_raw()),
    };
    let exit = under_lock(&args, &tenure, &mut signals).await;
    // Nothing waits for this any more, yet what is left at the engine should go.
    let _ = time::timeout(GOODBYE, tenure.close()).await;
    exit
}

/// Acquires, runs the command, releases.
async fn under_lock(args: &Run, tenure: &Tenure, signals: &mut Signals) -> Exit {
    let term = args.ttl.unwrap_or(tenure.default_term());
    let mutex = tenure.mutex(&args.key).ttl(term).class("run");
    let lease = tokio::select! {
        // Dropping the other branch leaves the queue.
        signal = signals.next() => return Exit::of_signal(signal.as_raw()),
        acquired = acquire(args, &mutex) => match acquired {
            Ok(Some(lease)) => lease,
            Ok(None) => {
                let engine = tenure.promises().engine;
                return not_run(
                    Exit::NotAcquired,
                    &format!("\"{}\" on {engine}: somebody else holds it", shown(&args.key)),
                );
            }
            Err(error) => return not_run(Exit::of_error(&error), &error.to_string()),
        },
    };
    tokio::select! {
        signal = signals.next() => {
            release(args, lease).await;
            return Exit::of_signal(signal.as_raw());
        }
        kept = full_term(&lease, term) => if let Err(cause) = kept {
            return not_run(Exit::Lost, &format!("lost \"{}\": {}", shown(&args.key), why(cause)));
        },
    }
    if args.verbose {
        say::line(&format!("granted \"{}\" with token {}", shown(&args.key), lease.token()));
    }
    let token = lease.token().to_string();
    match Child::start(&args.command, &[("TENURE_KEY", &args.key), ("TENURE_TOKEN", &token)]) {
        Ok(child) => watch(args, lease, child, signals).await,
        Err(error) => {
            release(args, lease).await;
            could_not_start(args, &error)
        }
    }
}

async fn acquire(args: &Run, mutex: &Mutex) -> tenure::Result<Option<Lease>> {
    match args.wait {
        _ if args.no_wait => mutex.try_acquire().await,
        Some(wait) => mutex.acquire_within(wait).await.map(Some),
        None => mutex.acquire().await.map(Some),
    }
}

/// Waits until the lease has its full term, less a fifth for the way to the engine and clocks, or has
/// been prolonged. A grant that was handed over starts with a short one, which the keeper prolongs at
/// once. Ends with the cause if it is lost before that.
pub(crate) async fn full_term(lease: &Lease, term: Duration) -> Result<(), LossCause> {
    let at_first = lease.valid_until();
    while lease.remaining() < term - term / 5 && lease.valid_until() == at_first {
        tokio::select! {
            cause = lease.lost() => return Err(cause),
            () = time::sleep(LOOK_AGAIN) => {}
        }
    }
    if lease.is_held() { Ok(()) } else { Err(lease.lost().await) }
}

/// Waits for the command's end, passes signals on, and ends it if the lock is lost.
async fn watch(args: &Run, lease: Lease, mut child: Child, signals: &mut Signals) -> Exit {
    let cause = loop {
        tokio::select! {
            biased;
            () = child.ended() => break None,
            cause = lease.lost() => break Some(cause),
            signal = signals.next() => child.pass_on(signal),
        }
    };
    let Some(cause) = cause else {
        let status = child.finish();
        return released(args, lease, status).await;
    };
    let left = lease.valid_until().since(Moment::now());
    // Half of it, if there is hardly any: a short term is told of late.
    let patience = GRACE.min(left.saturating_sub(KILL_AHEAD.min(left / 2)));
    child.ask_to_end();
    say::line(&format!("lost \"{}\": {}; the command is ended", shown(&args.key), why(cause)));
    child.end_within(patience).await;
    match child.finish() {
        Some(_) => Exit::Lost,
        None => say::because(Exit::Lost, "the command was killed, but has not ended yet"),
    }
}

fn why(cause: LossCause) -> &'static str {
    match cause {
        LossCause::Taken => "the engine says that it is not ours any more",
        LossCause::Expired => "it could not be renewed in time",
        _ => "the client was closed",
    }
}

/// Gives the lock back after the command has ended.
async fn released(args: &Run, lease: Lease, status: Option<ExitStatus>) -> Exit {
    let exit = status.map_or(Exit::Bug, Exit::of_child);
    match release(args, lease).await {
        Some(Released::WasLost) => {
            let what = format!(
                "\"{}\" was lost while the command ran, which ended with {}",
                shown(&args.key),
                exit.code()
            );
            say::because(Exit::Lost, &what)
        }
        _ => exit,
    }
}

/// Releases; a failure is told, and costs one term at most.
async fn release(args: &Run, lease: Lease) -> Option<Released> {
    match lease.release().await {
        Ok(released) => {
            if args.verbose {
                say::line(&format!("released \"{}\"", shown(&args.key)));
            }
            Some(released)
        }
        Err(error) => {
            say::line(&format!("{error}; the lock may stay until its term is over"));
            None
        }
    }
}

fn could_not_start(args: &Run, error: &io::Error) -> Exit {
    let exit = match error.kind() {
        io::ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::NotExecutable,
    };
    let program = args.command.first().map(|program| program.to_string_lossy().into_owned());
    say::because(
        exit,
        &format!("the command \"{}\" could not be started: {error}", shown(&program.unwrap_or_default())),
    )
}

/// Ends without having started the command, which a caller must be able to rely on.
fn not_run(exit: Exit, what: &str) -> Exit {
    say::because(exit, &format!("{what}; the command was not run"))
}

/// A name with whatever a terminal would act upon made visible.
fn shown(name: &str) -> String {
    name.escape_debug().to_string()
}
