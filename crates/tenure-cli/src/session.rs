//! A connection to the engine, as every subcommand but `run` opens and closes it.

use std::time::Duration;

use tenure::{Key, Tenure};
use tokio::time;

use crate::engine_url::{EngineArgs, Source};
use crate::exit::Exit;
use crate::say;
use crate::signals::Signals;

/// How long saying goodbye to the engine may take when nothing depends on it any more.
const GOODBYE: Duration = Duration::from_secs(2);

/// A client, and the signals that end the command.
pub(crate) struct Session {
    pub(crate) tenure: Tenure,
    pub(crate) signals: Signals,
    /// The engine's name and URL, without secrets.
    pub(crate) engine: String,
}

impl Session {
    /// Connects. Keys are checked before anything is sent.
    pub(crate) async fn open(args: &EngineArgs, key: Option<&str>) -> Result<Session, Exit> {
        let wrong = |what: String| say::because(Exit::Usage, &what);
        if let Some(Err(error)) = key.map(Key::new) {
            return Err(wrong(error.to_string()));
        }
        let url = args.choose().map_err(wrong)?;
        // Somebody who typed no URL has to be told where a wrong one came from.
        let from = if url.source == Source::Option { String::new() } else { format!("{}: ", url.source) };
        let mut signals = Signals::catch()
            .map_err(|error| say::because(Exit::Bug, &format!("signals cannot be caught: {error}")))?;
        let tenure = tokio::select! {
            connected = tenure::connect(url.secret()) => connected
                .map_err(|error| say::because(Exit::of_error(&error), &format!("{from}{error}")))?,
            signal = signals.next() => return Err(Exit::of_signal(signal.as_raw())),
        };
        let engine = format!("{} ({url})", tenure.promises().engine);
        Ok(Session { tenure, signals, engine })
    }

    /// Gives back what is left and ends as told.
    pub(crate) async fn close(self, exit: Exit) -> Exit {
        let _ = time::timeout(GOODBYE, self.tenure.close()).await;
        exit
    }
}

/// A name with whatever a terminal would act upon made visible.
pub(crate) fn shown(name: &str) -> String {
    name.escape_debug().to_string()
}
