//! `tenure hold`: a lock for a program in any language, told in lines of JSON.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tenure::{Lease, LossCause, Mutex, Released, Tenure};
use tokio::sync::oneshot;
use tokio::time;

use crate::engine_url::EngineArgs;
use crate::exit::Exit;
use crate::host::Host;
use crate::run::full_term;
use crate::session::{Session, shown};
use crate::streams::{self, Ended};
use crate::{duration, json, say};

/// A lock that comes so soon was not waited for.
const SOON: Duration = Duration::from_millis(100);
/// How often it is looked who is in the way.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How often it is looked whether a reader has made room for the grant.
const ROOM: Duration = Duration::from_millis(20);

/// Examples and codes, as `--help` shows them.
pub(crate) const HELP: &str = "\
Examples:
  tenure hold jobs/nightly              hold it until Ctrl-D or Ctrl-C
  tenure hold --no-wait jobs/nightly    only if it is free
  coproc LOCK { tenure hold jobs/nightly; }    from bash; closing its input releases

It writes one JSON object a line: waiting, granted, renewed (with --renewals), lost, released. Every one has
v, event, at, key and engine. It ends when its standard input ends, when a signal comes, or when nobody
reads its output any more; then it releases the lock. If that fails it says so; the term ends it then.

Exit codes:
  0    released after the input's end
  64   wrong usage or input: an option, the key, a duration, the engine's URL
  69   the engine could not be reached or refused, or the lock could not be used
  75   not acquired in time
  76   the lock was lost
  128 + a signal's number: released after it, or never acquired; 141 if nobody read the output";

/// `tenure hold`.
#[derive(Args)]
pub(crate) struct Hold {
    #[command(flatten)]
    engine: EngineArgs,

    /// How long the lock lasts unless renewed; it is renewed as long as this runs. Unless said: the
    /// ttl of the URL, or 30s.
    #[arg(long, value_name = "DURATION", value_parser = duration::above_zero, allow_hyphen_values = true)]
    ttl: Option<Duration>,

    /// Wait at most so long for the lock; 0 tries once. Waits for ever unless said.
    #[arg(long, value_name = "DURATION", conflicts_with = "no_wait", value_parser = duration::any,
          allow_hyphen_values = true)]
    wait: Option<Duration>,

    /// Try once and do not wait.
    #[arg(long)]
    no_wait: bool,

    /// What `tenure who` shows beside the holder; others can read it.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    value: String,

    /// Also write a line for each renewal, with what is left then.
    #[arg(long)]
    renewals: bool,

    /// The name of the lock: 1 to 1,024 bytes of UTF-8.
    #[arg(value_name = "KEY")]
    key: String,
}

/// What happened; a line.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event {
    Waiting {
        #[serde(flatten)]
        about: About,
        #[serde(flatten)]
        in_the_way: InTheWay,
    },
    Granted {
        #[serde(flatten)]
        about: About,
        token: String,
        raw_token: String,
        owner: String,
        term_ms: u64,
        valid_ms: u64,
    },
    Renewed {
        #[serde(flatten)]
        about: About,
        token: String,
        valid_ms: u64,
    },
    Lost {
        #[serde(flatten)]
        about: About,
        token: String,
        cause: &'static str,
    },
    Released {
        #[serde(flatten)]
        about: About,
        token: String,
    },
}

/// What every event has.
#[derive(Serialize)]
struct About {
    at: String,
    key: String,
    engine: &'static str,
}

/// Who holds it, since when, and how many wait before us, as far as is known.
#[derive(Clone, Default, PartialEq, Serialize)]
struct InTheWay {
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ahead: Option<usize>,
}

/// What ends the hold, or the wait for it, from outside.
struct Ends<'a> {
    session: &'a mut Session,
    streams: oneshot::Receiver<Ended>,
}

impl Ends<'_> {
    /// How to end, once something says so.
    async fn next(&mut self) -> Exit {
        tokio::select! {
            signal = self.session.signals.next() => Exit::of_signal(signal.as_raw()),
            ended = &mut self.streams => match ended {
                Ok(Ended::Output) => streams::failed(&io::ErrorKind::BrokenPipe.into()),
                Ok(Ended::Input) => Exit::Own(0),
                Err(_) => Exit::Bug,
            },
        }
    }
}

/// Holds it, and says how `tenure` should end.
pub(crate) async fn hold(args: Hold) -> Exit {
    let mut session = match Session::open(&args.engine, Some(&args.key)).await {
        Ok(session) => session,
        Err(exit) => return exit,
    };
    let exit = match streams::ends(true) {
        Ok(streams) => {
            let tenure = session.tenure.clone();
            until_the_end(&args, &tenure, Ends { session: &mut session, streams }).await
        }
        Err(error) => say::because(Exit::Bug, &format!("no thread can be started: {error}")),
    };
    session.close(exit).await
}

async fn until_the_end(args: &Hold, tenure: &Tenure, mut ends: Ends<'_>) -> Exit {
    let term = args.ttl.unwrap_or(tenure.default_term());
    let mutex = tenure.mutex(&args.key).ttl(term).value(&args.value).class("hold");
    let teller = Teller { tenure, key: &args.key };
    let lease = tokio::select! {
        // Dropping the other branch leaves the queue.
        exit = ends.next() => return exit,
        acquired = told(&teller, &mutex, acquire(args, &mutex)) => match acquired {
            Err(error) => return streams::failed(&error),
            Ok(Err(error)) => return say::because(Exit::of_error(&error), &error.to_string()),
            Ok(Ok(None)) => {
                let what = format!(
                    "\"{}\" on {}: somebody else holds it",
                    shown(&args.key),
                    tenure.promises().engine
                );
                return say::because(Exit::NotAcquired, &what);
            }
            Ok(Ok(Some(lease))) => lease,
        },
    };
    let kept = tokio::select! {
        exit = ends.next() => return teller.release(lease, exit).await,
        kept = in_full(&lease, term) => kept,
    };
    let written = match kept {
        Ok(()) => streams::print(&json::line(&teller.granted(&lease, term))),
        Err(cause) => return teller.lost(&lease, cause),
    };
    match written {
        Ok(()) => keep(args, &teller, lease, term, ends).await,
        Err(error) => teller.release(lease, streams::failed(&error)).await,
    }
}

/// Waits until *granted* can be told: a grant that was handed over has a short term at first, and whoever reads
/// of it should have a whole one; and there must be room for the line.
async fn in_full(lease: &Lease, term: Duration) -> Result<(), LossCause> {
    full_term(lease, term).await?;
    while !streams::has_room() {
        tokio::select! {
            cause = lease.lost() => return Err(cause),
            () = time::sleep(ROOM) => {}
        }
    }
    Ok(())
}

/// Holds it until something ends it.
async fn keep(args: &Hold, teller: &Teller<'_>, lease: Lease, term: Duration, mut ends: Ends<'_>) -> Exit {
    let mut valid_until = lease.valid_until();
    loop {
        tokio::select! {
            biased;
            cause = lease.lost() => return teller.lost(&lease, cause),
            exit = ends.next() => return teller.release(lease, exit).await,
            () = time::sleep(term / 12), if args.renewals => {
                if lease.valid_until() == valid_until {
                    continue;
                }
                valid_until = lease.valid_until();
                let token = lease.token().to_string();
                let valid_ms = json::millis(lease.remaining());
                let event = Event::Renewed { about: teller.about(), token, valid_ms };
                if let Err(error) = streams::offer(&json::line(&event)) {
                    return teller.release(lease, streams::failed(&error)).await;
                }
            }
        }
    }
}

async fn acquire(args: &Hold, mutex: &Mutex) -> tenure::Result<Option<Lease>> {
    match args.wait {
        _ if args.no_wait => mutex.try_acquire().await,
        Some(wait) => mutex.acquire_within(wait).await.map(Some),
        None => mutex.acquire().await.map(Some),
    }
}

/// Acquires, and tells who is in the way whenever that changes.
async fn told<T>(teller: &Teller<'_>, mutex: &Mutex, acquiring: impl Future<Output = T>) -> io::Result<T> {
    let mut acquiring = pin!(acquiring);
    let mut last = None;
    let mut pause = SOON;
    loop {
        let looking = async {
            time::sleep(pause).await;
            teller.in_the_way(mutex).await
        };
        let in_the_way = tokio::select! {
            biased;
            acquired = &mut acquiring => return Ok(acquired),
            in_the_way = looking => in_the_way,
        };
        if last.as_ref() != Some(&in_the_way) {
            let about = teller.about();
            streams::offer(&json::line(&Event::Waiting { about, in_the_way: in_the_way.clone() }))?;
            last = Some(in_the_way);
        }
        pause = LOOK_AGAIN;
    }
}

/// Tells of events.
struct Teller<'a> {
    tenure: &'a Tenure,
    key: &'a str,
}

impl Teller<'_> {
    fn about(&self) -> About {
        About { at: json::now(), key: self.key.to_owned(), engine: self.tenure.promises().engine }
    }

    async fn in_the_way(&self, mutex: &Mutex) -> InTheWay {
        let view = self.tenure.look(self.key).await.ok();
        let holder = view.and_then(|view| view.holders.into_iter().next());
        let ahead = mutex.ahead();
        let Some(holder) = holder else { return InTheWay { ahead, ..InTheWay::default() } };
        let Host { host, pid } = Host::of_holder(&holder);
        InTheWay { host, pid, since: holder.since_unix_ms.and_then(json::stamp), ahead }
    }

    fn granted(&self, lease: &Lease, term: Duration) -> Event {
        Event::Granted {
            about: self.about(),
            token: lease.token().to_string(),
            raw_token: lease.raw_token().to_string(),
            owner: lease.owner().to_string(),
            term_ms: json::millis(term),
            valid_ms: json::millis(lease.remaining()),
        }
    }

    /// Tells of a loss. Where nobody reads it, the end of the output tells the same.
    fn lost(&self, lease: &Lease, cause: LossCause) -> Exit {
        let cause = match cause {
            LossCause::Taken => "taken",
            LossCause::Expired => "expired",
            _ => "closed",
        };
        let event = Event::Lost { about: self.about(), token: lease.token().to_string(), cause };
        let _ = streams::offer(&json::line(&event));
        Exit::Lost
    }

    /// Releases, tells of it, and ends as told, unless the lock had been lost.
    async fn release(&self, lease: Lease, exit: Exit) -> Exit {
        let token = lease.token().to_string();
        let cause = if lease.remaining().is_zero() { "expired" } else { "taken" };
        let event = match lease.release().await {
            Ok(Released::Released) => Event::Released { about: self.about(), token },
            Ok(Released::WasLost) => {
                let _ = streams::print(&json::line(&Event::Lost { about: self.about(), token, cause }));
                return Exit::Lost;
            }
            Err(error) => {
                say::line(&format!("{error}; the lock may stay until its term is over"));
                return exit;
            }
        };
        // Nobody may read it any more.
        let _ = streams::offer(&json::line(&event));
        exit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> About {
        About { at: "2025-12-01T02:30:05.007Z".to_owned(), key: "k".to_owned(), engine: "redis" }
    }

    #[test]
    fn golden_events() {
        let start = |event| {
            format!(r#"{{"v":1,"event":"{event}","at":"2025-12-01T02:30:05.007Z","key":"k","engine":"redis""#)
        };
        let token = || "9".to_owned();
        let in_the_way = InTheWay {
            host: Some("db-1".to_owned()),
            pid: Some(42),
            since: Some("2025-12-01T02:30:00.000Z".to_owned()),
            ahead: Some(0),
        };
        let (raw_token, owner) = ("1".to_owned(), "00".to_owned());
        let table = [
            (
                Event::Waiting { about: about(), in_the_way },
                "waiting",
                r#","host":"db-1","pid":42,"since":"2025-12-01T02:30:00.000Z","ahead":0}"#,
            ),
            (Event::Waiting { about: about(), in_the_way: InTheWay::default() }, "waiting", "}"),
            (
                Event::Granted {
                    about: about(),
                    token: token(),
                    raw_token,
                    owner,
                    term_ms: 30_000,
                    valid_ms: 29_398,
                },
                "granted",
                r#","token":"9","raw_token":"1","owner":"00","term_ms":30000,"valid_ms":29398}"#,
            ),
            (
                Event::Renewed { about: about(), token: token(), valid_ms: 5 },
                "renewed",
                r#","token":"9","valid_ms":5}"#,
            ),
            (
                Event::Lost { about: about(), token: token(), cause: "taken" },
                "lost",
                r#","token":"9","cause":"taken"}"#,
            ),
            (Event::Released { about: about(), token: token() }, "released", r#","token":"9"}"#),
        ];
        for (event, name, rest) in table {
            assert_eq!(json::line(&event), start(name) + rest);
        }
    }
}
