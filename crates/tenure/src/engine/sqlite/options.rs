//! Where the database is, and what a URL says about it.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{LONGEST_TERM, SHORTEST_TERM};
use crate::error::{Error, ErrorKind, Result};
use crate::time::read_longest_term;

/// What a URL says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) path: PathBuf,
    pub(super) longest_term: Duration,
}

impl Options {
    /// Reads `sqlite:PATH` or `sqlite:///PATH`, with `?ttl=…&max_ttl=…`.
    pub(super) fn from_url(url: &str) -> Result<Options> {
        let rest = url.strip_prefix("sqlite:").ok_or_else(|| invalid("that is no URL of sqlite:"))?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = match path.strip_prefix("//") {
            Some(path) if path.starts_with('/') => path,
            Some(_) => {
                return Err(invalid("the URL names a host, and a file is on this machine")
                    .advice("write sqlite:PATH, or sqlite:///PATH with an absolute path"));
            }
            None => path,
        };
        let path = PathBuf::from(unescape(path)?);
        if path.file_name().is_none() || path.as_os_str().as_bytes().ends_with(b"/") {
            return Err(
                invalid("the URL names no file").advice("write sqlite:PATH, such as sqlite:locks.sqlite")
            );
        }
        let mut options = Options { path, longest_term: LONGEST_TERM };
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            match name {
                // The client's default term; the client reads and checks it.
                "ttl" => {}
                "max_ttl" => options.longest_term = read_longest_term(value, SHORTEST_TERM, LONGEST_TERM)?,
                other => {
                    let what = format!("the URL has an unknown parameter \"{}\"", other.escape_debug());
                    return Err(invalid(what).advice("known are ttl and max_ttl; write a ? in a path as %3F"));
                }
            }
        }
        Ok(options)
    }
}

/// The URL of a database, whatever its path holds.
#[must_use]
pub fn url_of(path: &Path) -> String {
    let mut url = "sqlite:".to_owned();
    // A path with two slashes at its beginning is the same as with one, and would look like a host.
    let bytes = path.as_os_str().as_bytes();
    let doubled = bytes.iter().take_while(|byte| **byte == b'/').count().saturating_sub(1);
    for byte in &bytes[doubled..] {
        match byte {
            b'%' | b'?' | b'#' | b'\x00'..=b' ' | b'\x7f'..=b'\xff' => url.push_str(&format!("%{byte:02X}")),
            plain => url.push(char::from(*plain)),
        }
    }
    url
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

/// Undoes percent-encoding. A path is bytes, not text.
fn unescape(text: &str) -> Result<OsString> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        let byte = match first {
            b'%' => {
                let hex = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
                let byte = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok());
                rest = tail.get(2..).unwrap_or_default();
                byte.ok_or_else(|| {
                    invalid("the path in the URL has a % that encodes nothing").advice("write a % as %25")
                })?
            }
            b'#' => return Err(invalid("the path in the URL has a #").advice("write a # as %23")),
            plain => *plain,
        };
        if byte == 0 {
            return Err(invalid("the path in the URL holds a zero byte"));
        }
        bytes.push(byte);
    }
    Ok(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        for (url, path) in [
            ("sqlite:locks.sqlite", "locks.sqlite"),
            ("sqlite:./a b/locks", "./a b/locks"),
            ("sqlite:/var/lib/x.db?ttl=5s", "/var/lib/x.db"),
            ("sqlite:///var/lib/x.db?max_ttl=1h&ttl=5s", "/var/lib/x.db"),
            ("sqlite:a%3Fb%25c%23?ttl=5s", "a?b%c#"),
            ("sqlite::memory:", ":memory:"),
        ] {
            assert_eq!(Options::from_url(url).unwrap().path, Path::new(path), "{url}");
        }
        let longest = Options::from_url("sqlite:x?max_ttl=1h").unwrap().longest_term;
        assert_eq!(longest, Duration::from_secs(3600));
    }

    #[test]
    fn bad_urls_are_refused_with_the_reason() {
        for (url, part) in [
            ("sqlite:", "names no file"),
            ("sqlite:?ttl=5s", "names no file"),
            ("sqlite:folder/", "names no file"),
            ("sqlite:/", "names no file"),
            ("sqlite:..", "names no file"),
            ("sqlite://host/x", "names a host"),
            ("sqlite:100%", "%25"),
            ("sqlite:a%0", "%25"),
            ("sqlite:a%00b", "zero byte"),
            ("sqlite:a#b", "%23"),
            ("sqlite:x?prefix=a", "\"prefix\""),
            ("sqlite:x?max_ttl=5", "duration"),
            ("sqlite:x?max_ttl=99ms", "100ms"),
        ] {
            let error = Options::from_url(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(error.to_string().contains(part), "{url}: {error}");
        }
    }

    #[test]
    fn every_path_has_a_url() {
        for bytes in [&b"/a/b"[..], b"//a", b"rel", b"/100%/what?#x y", b"/\xff\x01\xc3\xa4"] {
            let path = PathBuf::from(OsString::from_vec(bytes.to_vec()));
            let read = Options::from_url(&url_of(&path)).unwrap().path;
            assert_eq!(read.components().collect::<Vec<_>>(), path.components().collect::<Vec<_>>());
        }
    }
}
