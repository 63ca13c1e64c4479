//! The engine that the environment names.

use std::env::VarError;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::client::{Tenure, connect};
use crate::error::{Error, ErrorKind, Result};

const URL: &str = "TENURE_URL";
const URL_FILE: &str = "TENURE_URL_FILE";

/// The longest first line that is read (R14).
const MOST_BYTES: u64 = 64 * 1024;

/// Connects to the store that the environment names: by the URL in `TENURE_URL`, else by the first line of the
/// file that `TENURE_URL_FILE` names. A variable that is empty counts as not set.
///
/// A password belongs into the file: other programs of the same user, and crash reports, can see the environment.
/// The file should be for its owner only. One that others may read is used all the same, because platforms
/// mount secrets so, with a warning (`tracing`) if the URL has a login.
///
/// ```no_run
/// # async fn example() -> tenure::Result<()> {
/// let tenure = tenure::connect_from_env().await?;
/// # tenure.close().await }
/// ```
///
/// # Errors
/// `Invalid` if neither variable is set, or the file cannot be read or holds no URL; else as [`connect`]. No
/// message shows the URL.
///
/// # Cancel safety
/// As [`connect`]. The file is read in the first poll, blocking.
pub async fn connect_from_env() -> Result<Tenure> {
    let url = url_from(|name| std::env::var(name)).map_err(|error| error.operation("connect"))?;
    connect(url).await
}

fn url_from(variable: impl Fn(&str) -> Result<String, VarError>) -> Result<String> {
    let set = |name: &str| match variable(name) {
        Ok(value) => Ok(Some(value.trim().to_owned()).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(invalid(format!("{name} is not UTF-8"))),
    };
    if let Some(url) = set(URL)? {
        return Ok(url);
    }
    match set(URL_FILE)? {
        Some(path) => first_line(Path::new(&path)),
        None => Err(invalid("the environment names no engine").advice(format!("set {URL} or {URL_FILE}"))),
    }
}

fn first_line(path: &Path) -> Result<String> {
    let unreadable = |error: std::io::Error| {
        invalid(format!("{URL_FILE}: {} cannot be read: {error}", path.display())).source_error(error)
    };
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode();
    let mut line = String::new();
    BufReader::new(file.take(MOST_BYTES)).read_line(&mut line).map_err(unreadable)?;
    let url = line.trim();
    if url.is_empty() {
        return Err(invalid(format!("{URL_FILE}: the first line of {} is empty", path.display()))
            .advice("write the engine's URL there"));
    }
    if mode & 0o004 != 0 && url.contains('@') {
        tracing::warn!(path = %path.display(), "everybody on this machine may read the file of the engine's URL");
    }
    Ok(url.to_owned())
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str, file: &str) -> Result<String> {
        url_from(|name| match if name == URL { url } else { file } {
            "unset" => Err(VarError::NotPresent),
            value => Ok(value.to_owned()),
        })
    }

    #[test]
    fn the_variable_counts_before_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("url");
        let file = path.to_str().unwrap();
        std::fs::write(&path, " redis://:secret@h \nmemory:\n").unwrap();
        assert_eq!(read("memory:\n", file).unwrap(), "memory:");
        for empty in ["unset", "", " "] {
            assert_eq!(read(empty, file).unwrap(), "redis://:secret@h", "{empty:?}");
        }
        std::fs::write(&path, "memory:").unwrap();
        assert_eq!(read("unset", file).unwrap(), "memory:", "without an end of line");
    }

    #[test]
    fn what_names_no_engine_is_refused_without_a_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("url");
        let file = path.to_str().unwrap();
        std::fs::write(&path, "\nredis://:secret@h\n").unwrap();
        let bytes = folder.path().join("bytes");
        std::fs::write(&bytes, b"redis://:secret\xff@h\n").unwrap();
        for (file, part) in [
            ("unset", "set TENURE_URL or TENURE_URL_FILE"),
            (file, "the first line of"),
            (folder.path().to_str().unwrap(), "cannot be read"),
            (bytes.to_str().unwrap(), "UTF-8"),
            ("/does/not/exist", "/does/not/exist cannot be read: No such file"),
        ] {
            let error = read("unset", file).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(part), "{error}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }
}
