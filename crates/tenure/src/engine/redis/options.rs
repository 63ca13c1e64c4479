//! Where the server is and how to log in: from a URL, or from settings the caller has.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use url::Url;

use super::names;
use crate::error::{Error, ErrorKind, Result};
use crate::time::read_longest_term;

/// How long a request may take, unless said otherwise.
pub const DEFAULT_REQUEST_LIMIT: Duration = Duration::from_secs(2);

/// The shortest term.
pub(super) const SHORTEST_TERM: Duration = Duration::from_millis(100);
/// The longest term that may be promised.
pub(super) const LONGEST_TERM: Duration = Duration::from_secs(30 * 24 * 3600);

/// A user and a password. Never shown.
#[derive(Clone)]
pub struct Credentials {
    /// The user; `None` for the server's default one.
    pub user: Option<String>,
    /// The password.
    pub password: String,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(hidden)")
    }
}

type Ask = Arc<dyn Fn() -> Option<Credentials> + Send + Sync>;

/// How to reach a Redis server. Made by [`Redis::options`](super::Redis::options).
#[derive(Clone)]
#[must_use]
pub struct Options {
    /// Where the server listens on this machine; host and port count where there is none.
    pub(super) socket: Option<PathBuf>,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) database: u32,
    pub(super) tls: Option<Arc<rustls::ClientConfig>>,
    pub(super) credentials: Ask,
    pub(super) prefix: String,
    pub(super) limit: Duration,
    /// How long a connect may take at most: many round trips to a server that may be far away.
    pub(super) connect_limit: Duration,
    pub(super) longest_term: Duration,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("place", &self.place())
            .field("database", &self.database)
            .field("tls", &self.tls.is_some())
            .field("prefix", &self.prefix)
            .field("request_limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// For the line of renewals: a quarter of the time limit. A renewal can be repeated at any time, so
    /// a silent line is given up early, before it costs the leases.
    pub(super) fn for_renewals(&self) -> Options {
        Options { limit: self.limit / 4, ..self.clone() }
    }

    /// Where the server is, for people.
    pub(super) fn place(&self) -> String {
        match &self.socket {
            Some(path) => path.display().to_string(),
            None => format!("{}:{}", self.host, self.port),
        }
    }

    /// Reads `redis://` or `rediss://[user:password@]host[:port][/database][?prefix=…&ttl=…&max_ttl=…&ca=…]`, or
    /// `redis+unix://[user:password@]/path[?db=…&prefix=…&ttl=…&max_ttl=…]`.
    pub(super) fn from_url(text: &str) -> Result<Options> {
        // The text may hold a password, so no message shows it.
        let local = text.strip_prefix("redis+unix:").map(with_host).transpose()?;
        let url = Url::parse(local.as_deref().unwrap_or(text))
            .map_err(|error| invalid(format!("the URL cannot be read: {error}")))?;
        let secure = match url.scheme() {
            "redis" | "redis+unix" => false,
            "rediss" => true,
            other => {
                return Err(invalid(format!("the scheme {other}: is not redis:, rediss: or redis+unix:")));
            }
        };
        let host =
            url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| invalid("the URL names no host"))?;
        let credentials = url_credentials(&url)?;
        let mut options = Options {
            socket: local.is_some().then(|| socket(url.path())).transpose()?,
            host: unescape(host.trim_matches(['[', ']']), "host")?,
            port: url.port().unwrap_or(6379),
            database: if local.is_some() { 0 } else { database(url.path())? },
            tls: None,
            credentials: Arc::new(move || credentials.clone()),
            prefix: String::new(),
            limit: DEFAULT_REQUEST_LIMIT,
            connect_limit: DEFAULT_REQUEST_LIMIT,
            longest_term: LONGEST_TERM,
        };
        let mut ca = None;
        for (name, value) in url.query_pairs() {
            match &*name {
                "prefix" => options = options.prefix(&value)?,
                "max_ttl" => options.longest_term = read_longest_term(&value, SHORTEST_TERM, LONGEST_TERM)?,
                "ca" => ca = Some(value.into_owned()),
                "db" if local.is_some() => options.database = database(&value)?,
                // The client's default term; the client reads and checks it.
                "ttl" => {}
                other => {
                    return Err(invalid(format!(
                        "the URL has an unknown parameter \"{}\"",
                        other.escape_debug()
                    ))
                    .advice("known are prefix, ttl, max_ttl; with rediss: ca; with redis+unix: db"));
                }
            }
        }
        match (secure, ca) {
            (true, ca) => options.tls = Some(Arc::new(tls_config(ca.as_deref().map(Path::new))?)),
            (false, Some(_)) => return Err(invalid("the parameter ca needs the scheme rediss:")),
            (false, None) => {}
        }
        Ok(options)
    }

    /// Speaks TLS with these settings.
    pub fn tls(mut self, config: Arc<rustls::ClientConfig>) -> Options {
        self.tls = Some(config);
        self
    }

    /// Asks for user and password at each connect, so that they may change.
    pub fn credentials(mut self, ask: impl Fn() -> Option<Credentials> + Send + Sync + 'static) -> Options {
        self.credentials = Arc::new(ask);
        self
    }

    /// Puts a text before every name on the server.
    ///
    /// # Errors
    /// `Invalid` for control characters, more than 256 bytes, or a brace without a whole hash tag.
    pub fn prefix(mut self, prefix: &str) -> Result<Options> {
        names::check_prefix(prefix)?;
        prefix.clone_into(&mut self.prefix);
        Ok(self)
    }

    /// How long a request, or a connect, may take: two seconds unless said. At least 10 ms.
    pub fn request_limit(mut self, limit: Duration) -> Options {
        self.limit = limit.clamp(Duration::from_millis(10), Duration::from_secs(3600));
        self.connect_limit = self.limit;
        self
    }

    pub(super) fn server_name(&self) -> Result<ServerName<'static>> {
        ServerName::try_from(self.host.clone()).map_err(|error| {
            invalid(format!("\"{}\" cannot be verified by TLS", self.host)).source_error(error)
        })
    }
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::Invalid, what)
}

fn url_credentials(url: &Url) -> Result<Option<Credentials>> {
    let Some(password) = url.password() else {
        if url.username().is_empty() {
            return Ok(None);
        }
        return Err(invalid("the URL names a user without a password")
            .advice("write user:password@, or :password@ for the default user"));
    };
    let user = unescape(url.username(), "user")?;
    let password = unescape(password, "password")?;
    Ok(Some(Credentials { user: (!user.is_empty()).then_some(user), password }))
}

fn database(path: &str) -> Result<u32> {
    match path.trim_matches('/') {
        "" => Ok(0),
        number => number.parse().map_err(|_| invalid("the URL does not name a database by its number")),
    }
}

/// The URL of a socket with a host, without which a URL has no place for a login.
fn with_host(rest: &str) -> Result<String> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    match rest.find('/').map(|start| rest.split_at(start)) {
        Some((login, path)) if login.is_empty() || login.ends_with('@') => {
            Ok(format!("redis+unix://{login}localhost{path}"))
        }
        _ => Err(invalid("the URL does not name a socket by an absolute path")
            .advice("write redis+unix:///PATH or redis+unix://user:password@/PATH")),
    }
}

fn socket(path: &str) -> Result<PathBuf> {
    match unescape(path, "path")? {
        path if path.ends_with('/') => Err(invalid("the URL names a folder instead of a socket")),
        path => Ok(path.into()),
    }
}

/// Undoes percent-encoding.
fn unescape(text: &str, what: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let hex = (*first == b'%').then(|| tail.get(..2)).flatten();
        let byte = hex
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8(bytes).map_err(|_| invalid(format!("the {what} in the URL is not UTF-8")))
}

fn tls_config(ca: Option<&Path>) -> Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    if let Some(path) = ca {
        let unreadable = |error: rustls::pki_types::pem::Error| {
            invalid(format!("no certificates can be read from {}", path.display())).source_error(error)
        };
        for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
            roots.add(certificate.map_err(unreadable)?).map_err(|error| {
                invalid(format!("a certificate of {} is bad", path.display())).source_error(error)
            })?;
        }
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        return Err(invalid("no trusted certificates were found for TLS").advice("name them with ?ca=PATH"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::new(ErrorKind::Internal, "TLS cannot be set up").source_error(error))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let options =
            Options::from_url("redis://u%40x:p%3Aw@db.example:7000/3?prefix=app:&ttl=10s&max_ttl=1h")
                .unwrap();
        assert_eq!((options.host.as_str(), options.port, options.database), ("db.example", 7000, 3));
        assert_eq!(options.prefix, "app:");
        assert_eq!(options.longest_term, Duration::from_secs(3600));
        let credentials = (options.credentials)().unwrap();
        assert_eq!(credentials.user.as_deref(), Some("u@x"));
        assert_eq!(credentials.password, "p:w");
        assert!(!format!("{options:?} {credentials:?}").contains("p:w"));

        let options = Options::from_url("redis://[::1]").unwrap();
        assert_eq!((options.host.as_str(), options.port), ("::1", 6379));
        assert!((options.credentials)().is_none());
        let only_password = Options::from_url("redis://:secret@h").unwrap();
        assert!((only_password.credentials)().unwrap().user.is_none());
    }

    #[test]
    fn urls_of_sockets_are_read() {
        for (url, path, database, user) in [
            ("redis+unix:///run/redis.sock", "/run/redis.sock", 0, None),
            ("redis+unix:/run/redis.sock?db=3", "/run/redis.sock", 3, None),
            ("redis+unix:///run/a%20b%3Fc.sock?prefix=app:&ttl=5s", "/run/a b?c.sock", 0, None),
            ("redis+unix://u%40x:p%2Fw@/run/redis.sock", "/run/redis.sock", 0, Some("u@x")),
        ] {
            let options = Options::from_url(url).unwrap();
            assert_eq!(options.socket.as_deref(), Some(Path::new(path)), "{url}");
            assert_eq!((options.place().as_str(), options.database), (path, database), "{url}");
            let credentials = (options.credentials)();
            assert_eq!(credentials.as_ref().and_then(|it| it.user.as_deref()), user, "{url}");
            assert_eq!(credentials.map(|it| it.password).as_deref(), user.map(|_| "p/w"), "{url}");
        }
    }

    #[test]
    fn bad_urls_are_refused_without_showing_a_password() {
        for (url, part) in [
            ("http://:secret@h", "scheme"),
            ("redis://", "host"),
            ("redis://:secret@h:99999", "URL"),
            ("redis://:secret@h/x", "database"),
            ("redis://:secret@h/?prefx=a", "prefx"),
            ("redis://:secret@h/?ca=/x", "rediss"),
            ("rediss://:secret@h/?ca=/does/not/exist", "/does/not/exist"),
            ("redis://secret@h", "without a password"),
            ("redis://:secret@h/?prefix=a{b", "brace"),
            ("redis://:secret@h/?max_ttl=5", "duration"),
            ("redis://:secret@h/?max_ttl=99999999999999999999s", "duration"),
            ("redis://:secret@h/?max_ttl=99ms", "100ms"),
            ("redis://:secret@h/?db=1", "\"db\""),
            ("redis+unix://u:secret@h/run/redis.sock", "absolute path"),
            ("redis+unix://u:sec/secret@/run/redis.sock", "absolute path"),
            ("redis+unix:redis.sock", "absolute path"),
            ("redis+unix://:secret@/", "folder"),
            ("redis+unix://secret@/run/redis.sock", "without a password"),
            ("redis+unix://:secret@/run/redis.sock?db=x", "database"),
            ("redis+unix://:secret@/run/redis.sock?ca=/x", "rediss"),
        ] {
            let error = Options::from_url(url).unwrap_err();
            let message = format!("{error} {error:?}");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(message.contains(part), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
