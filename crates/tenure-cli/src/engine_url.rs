//! Which engine is meant, and how its URL is shown to people.

use std::env::{self, VarError};
use std::fmt;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use clap::Args;
use tenure::engine::sqlite;

/// Which engine, as every subcommand that needs one is told.
#[derive(Args, Clone, Debug)]
pub(crate) struct EngineArgs {
    /// The engine's URL, such as redis://127.0.0.1:6379.
    ///
    /// sqlite:PATH is a file on this machine; redis:, rediss: and redis+unix: are one Redis server; memory:
    /// excludes nobody and is for trying.
    ///
    /// Without it TENURE_URL counts, then the first line of the file named by TENURE_URL_FILE. A
    /// password belongs in that file: others on the machine can read arguments. Without any of them it is
    /// a file of yours, $XDG_STATE_HOME/tenure/locks.sqlite or ~/.local/state/tenure/locks.sqlite.
    #[arg(long, value_name = "URL")]
    pub(crate) engine: Option<String>,
}

/// Where a URL came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Option,
    Variable,
    File,
    /// None was named: a file of the user's own.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Option => "--engine",
            Source::Variable => "TENURE_URL",
            Source::File => "TENURE_URL_FILE",
            Source::Default => "the state folder",
        })
    }
}

/// The engine's URL. It may hold a password, so it is never shown as it is.
pub(crate) struct EngineUrl {
    url: String,
    pub(crate) source: Source,
}

impl EngineArgs {
    /// `--engine`, else `TENURE_URL`, else what stands in the file `TENURE_URL_FILE`, else sqlite in the
    /// user's state directory.
    pub(crate) fn choose(&self) -> Result<EngineUrl, String> {
        if let Some(url) = &self.engine {
            return checked(url.clone(), Source::Option);
        }
        if let Some(url) = variable("TENURE_URL")? {
            return checked(url, Source::Variable);
        }
        if let Some(path) = variable("TENURE_URL_FILE")? {
            let text = std::fs::read_to_string(&path)
                .map_err(|error| format!("TENURE_URL_FILE: {path} could not be read: {error}"))?;
            return checked(text.lines().next().unwrap_or_default().to_owned(), Source::File);
        }
        let url = sqlite::url_of(&state_folder()?.join("locks.sqlite"));
        Ok(EngineUrl { url, source: Source::Default })
    }
}

/// The folder of the user's own engine, made if it is not there: for nobody else to read.
fn state_folder() -> Result<PathBuf, String> {
    const ADVICE: &str = "say --engine URL, or set TENURE_URL or TENURE_URL_FILE";
    let state = match (variable("XDG_STATE_HOME")?, variable("HOME")?) {
        // The base directory specification has relative ones ignored.
        (Some(state), _) if state.starts_with('/') => PathBuf::from(state),
        (_, Some(home)) => PathBuf::from(home).join(".local/state"),
        _ => return Err(format!("no engine is named, and HOME is not set; {ADVICE}")),
    };
    let folder = state.join("tenure");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(|error| {
        format!("no engine is named, and the folder {} cannot be made: {error}; {ADVICE}", folder.display())
    })?;
    Ok(folder)
}

impl EngineUrl {
    /// With its secrets, for connecting only.
    pub(crate) fn secret(&self) -> &str {
        &self.url
    }
}

fn checked(url: String, source: Source) -> Result<EngineUrl, String> {
    let url = url.trim().to_owned();
    if url.is_empty() { Err(format!("{source} holds no URL")) } else { Ok(EngineUrl { url, source }) }
}

/// A variable's value. An empty one counts as not set.
fn variable(name: &str) -> Result<Option<String>, String> {
    match env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.trim().is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(format!("{name} is not UTF-8")),
    }
}

/// Without user, password and parameters. Where a `?`, `#` or `/` before an `@` leaves it open what
/// belongs to a password, the scheme is all that is shown.
impl fmt::Display for EngineUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((scheme, rest)) = self.url.split_once(':') else {
            return f.write_str("(a URL without a scheme)");
        };
        let (slashes, rest) = rest.strip_prefix("//").map_or(("", rest), |rest| ("//", rest));
        let shown = match rest.rsplit_once('@') {
            // A path, in which nothing is secret.
            _ if scheme == "sqlite" => rest,
            Some((login, _)) if login.contains(['?', '#', '/']) => "...",
            Some((_, place)) => place,
            None => rest,
        };
        let end = shown.find(['?', '#']).unwrap_or(shown.len());
        write!(f, "{scheme}:{slashes}{}", &shown[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_holds_no_secret() {
        let table = [
            ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("redis://:secret@h:1/2", "redis://h:1/2"),
            ("rediss://user:sec@ret@h:1/2?prefix=x", "rediss://h:1/2"),
            ("redis://user:sec/ret@h:1/2", "redis://..."),
            ("redis://h/?password=secret", "redis://h/"),
            ("redis://h/?password=sec@ret", "redis://..."),
            ("memory:", "memory:"),
            ("sqlite:/state/me@host/x.sqlite?ttl=5s", "sqlite:/state/me@host/x.sqlite"),
            ("secret", "(a URL without a scheme)"),
        ];
        for (url, shown) in table {
            let url = EngineUrl { url: url.to_owned(), source: Source::Option };
            assert_eq!(url.to_string(), shown);
        }
    }

    #[test]
    fn white_space_around_a_url_is_no_part_of_it() {
        assert_eq!(checked(" memory:\n".to_owned(), Source::File).unwrap().secret(), "memory:");
        assert!(checked(" \n".to_owned(), Source::File).is_err());
    }
}
