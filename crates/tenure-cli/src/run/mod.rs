//! `tenure run`: a command under a lock.

use std::any::Any;
use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::process::ExitStatus;
use std::time::Duration;

use clap::Args;
use tenure::engine::sqlite::Sqlite;
use tenure::{Key, Lease, LossCause, Moment, Mutex, Released, Tenure};
use tokio::time;

use crate::engine_url::{EngineArgs, EngineUrl, Source};
use crate::exit::Exit;
use crate::guard::talk::{OnLost, Terms};
use crate::signals::Signals;
use crate::{duration, say};

mod guarded;
mod terminal;
mod waiting;
mod watch;

use guarded::Guarded;
use watch::{Outcome, Watch, Why};

/// How long a command may take to end after it was asked to, unless said; at most a third of the term.
const GRACE: Duration = Duration::from_secs(2);
/// How long saying goodbye to the engine may take when nothing depends on it any more.
const GOODBYE: Duration = Duration::from_secs(2);
/// How often it is looked whether a lease has its full term.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// For `--help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  tenure run jobs/nightly -- ./nightly.sh            wait for the lock, run, release it
  tenure run --no-wait jobs/nightly -- ./nightly.sh  only if nobody else runs it; else 75
  tenure run --wait 10m --max-hold 1h k -- make      wait ten minutes, run for an hour at most
  tenure run --busy-code 0 --no-wait k -- ./job      for cron: that it runs elsewhere is no failure
  TENURE_URL_FILE=/etc/tenure/url tenure run k -- ./job";

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

    /// What becomes of the command when the lock is lost, or cannot be renewed any more.
    ///
    /// terminate: TERM to its process group so long before validity ends that --grace
    /// is over by then, then KILL. kill: KILL. ignore: it is said and the command runs on, without
    /// a lock. In each case `tenure` ends with 76.
    #[arg(long, value_name = "WHAT", default_value = "terminate")]
    pub(crate) on_lost: OnLost,

    /// How long the command may take to end from TERM to KILL: 2s unless said; at most a third of the
    /// term.
    #[arg(long, value_name = "DURATION", value_parser = duration::any, allow_hyphen_values = true)]
    pub(crate) grace: Option<Duration>,

    /// End the command (TERM, and KILL after --grace) when it has held the lock for so long; `tenure`
    /// ends with 76 then.
    #[arg(long, value_name = "DURATION", value_parser = duration::above_zero, allow_hyphen_values = true)]
    pub(crate) max_hold: Option<Duration>,

    /// The exit code in place of 75: not acquired in time.
    #[arg(long, value_name = "N")]
    pub(crate) busy_code: Option<u8>,

    /// The exit code in place of 76: the lock was lost.
    #[arg(long, value_name = "N")]
    pub(crate) lost_code: Option<u8>,

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
    match (carry_out(&args).await, args.busy_code, args.lost_code) {
        (Exit::NotAcquired, Some(code), _) | (Exit::Lost, _, Some(code)) => Exit::Own(code),
        (exit, ..) => exit,
    }
}

async fn carry_out(args: &Run) -> Exit {
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
    let exit = under_lock(args, &url, &tenure, &mut signals).await;
    // Nothing waits for this any more, yet what is left at the engine should go.
    let _ = time::timeout(GOODBYE, tenure.close()).await;
    exit
}

/// The grace, if it fits the term.
fn grace(args: &Run, term: Duration) -> Result<Duration, String> {
    let most = term / 3;
    match args.grace {
        None => Ok(GRACE.min(most)),
        Some(grace) if grace <= most => Ok(grace),
        Some(grace) => Err(format!(
            "--grace {grace:?} is longer than a third of the term, which is {term:?}; \
             say a shorter one, or a longer --ttl"
        )),
    }
}

/// Acquires, runs the command, releases.
async fn under_lock(args: &Run, url: &EngineUrl, tenure: &Tenure, signals: &mut Signals) -> Exit {
    let term = args.ttl.unwrap_or(tenure.default_term());
    let grace = match grace(args, term) {
        Ok(grace) => grace,
        Err(what) => return not_run(Exit::Usage, &what),
    };
    let mutex = tenure.mutex(&args.key).ttl(term).class("run");
    let lease = tokio::select! {
        // Dropping the other branch leaves the queue.
        signal = signals.next() => return Exit::of_signal(signal.as_raw()),
        acquired = waiting::shown(tenure, &mutex, &args.key, acquire(args, &mutex)) => match acquired {
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
    let granted = Moment::now();
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
    let terms = Terms { valid_until: lease.valid_until(), term, grace, on_lost: args.on_lost };
    let outcome = match start(args, url, tenure, &lease, terms) {
        Ok(guarded) => Watch::new(args, &lease, terms, granted, guarded).until_gone(signals).await,
        Err(error) => Outcome::NotStarted(error),
    };
    give_back(args, lease, outcome).await
}

fn start(args: &Run, url: &EngineUrl, tenure: &Tenure, lease: &Lease, terms: Terms) -> io::Result<Guarded> {
    let variables = [
        ("TENURE_KEY", args.key.clone()),
        ("TENURE_TOKEN", lease.token().to_string()),
        ("TENURE_OWNER", lease.owner().to_string()),
        ("TENURE_ENGINE", url.to_string()),
    ];
    Guarded::start(&args.command, &variables, terms, life(tenure))
}

/// With sqlite, the open file on which the lock's life rests.
fn life(tenure: &Tenure) -> Option<BorrowedFd<'_>> {
    let engine: &dyn Any = &**tenure.engine();
    engine.downcast_ref::<Sqlite>().map(Sqlite::liveness)
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

fn why(cause: LossCause) -> &'static str {
    match cause {
        LossCause::Taken => "the engine says that it is not ours any more",
        LossCause::Expired => "it could not be renewed in time",
        _ => "the client was closed",
    }
}

/// Gives the lock back after nothing is left of the command, and says how `tenure` should end.
async fn give_back(args: &Run, lease: Lease, outcome: Outcome) -> Exit {
    match outcome {
        Outcome::NotStarted(error) => {
            release(args, lease).await;
            could_not_start(args, &error)
        }
        Outcome::Ended(status) => released(args, lease, status).await,
        // If it is ours after all it is given back in the background, and the goodbye waits for that.
        Outcome::Forced(Why::Lost(_) | Why::Late) => Exit::Lost,
        Outcome::Forced(Why::MaxHold) => {
            release(args, lease).await;
            Exit::Lost
        }
        Outcome::Unguarded => {
            release(args, lease).await;
            say::because(Exit::Bug, "the process that guards the command was ended, so the command was, too")
        }
        Outcome::StillThere => say::because(Exit::Lost, "the command was killed, but has not ended yet"),
    }
}

/// Gives the lock back after the command has ended.
async fn released(args: &Run, lease: Lease, status: ExitStatus) -> Exit {
    let exit = Exit::of_child(status);
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
