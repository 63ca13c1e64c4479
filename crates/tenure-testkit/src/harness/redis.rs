//! One Redis server behind a line.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::engine::{Engine, redis};
use tenure::{Background, Key, Tenure};

use super::{Faults, Harness, background};
use crate::proxy::{Opaque, Proxy, Resp};
use crate::raw::{Raw, Value};
use crate::server::{Data, RedisOptions, RedisServer};

/// A server of its own, and a line to it.
#[derive(Debug)]
pub struct RedisHarness {
    name: &'static str,
    // Before the server, so that clients see the line end and not a server that is gone.
    line: Proxy,
    server: RedisServer,
    access: Access,
}

/// How clients get in.
#[derive(Clone, Debug, Default)]
struct Access {
    password: Option<String>,
    database: u8,
    prefix: String,
    tls: bool,
    /// Whether clients come in by the server's socket, where no line can be cut.
    unix: bool,
}

/// A client with a line of its own.
#[derive(Debug)]
pub struct LoneClient {
    /// The line, and nobody else on it.
    pub line: Proxy,
    /// The client.
    pub tenure: Tenure,
}

impl RedisHarness {
    /// Plain TCP, no password, the first database, no prefix.
    #[must_use]
    pub fn plain() -> RedisHarness {
        RedisHarness::start("redis", RedisOptions::default(), Access::default())
    }

    /// TLS, a password, another database, and a prefix.
    #[must_use]
    pub fn dressed() -> RedisHarness {
        let access = Access {
            password: Some("open:sesame/%".to_owned()),
            database: 3,
            prefix: "app:".to_owned(),
            tls: true,
            unix: false,
        };
        let options =
            RedisOptions { password: access.password.clone(), tls: true, ..RedisOptions::default() };
        RedisHarness::start("redis-tls", options, access)
    }

    /// The server's socket on this machine, no password, another
    /// database.
    #[must_use]
    pub fn local() -> RedisHarness {
        let access = Access { database: 2, unix: true, ..Access::default() };
        let options = RedisOptions { unix: true, ..RedisOptions::default() };
        RedisHarness::start("redis-unix", options, access)
    }

    fn start(name: &'static str, options: RedisOptions, access: Access) -> RedisHarness {
        let server = RedisServer::start(options).unwrap_or_else(|error| panic!("{error}"));
        let line = line_to(&server, access.tls);
        RedisHarness { name, line, server, access }
    }

    /// The server.
    #[must_use]
    pub fn server(&self) -> &RedisServer {
        &self.server
    }

    /// Whether the messages on the line can be read.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        !self.access.tls && !self.access.unix
    }

    /// A raw connection to the database the clients use.
    ///
    /// # Panics
    /// If the server does not answer.
    #[must_use]
    pub fn raw(&self) -> Raw {
        self.server
            .raw(self.access.database)
            .unwrap_or_else(|error| panic!("the truth cannot be asked: {error}"))
    }

    /// Sends one raw command that must not be refused.
    ///
    /// # Panics
    /// If the server does not answer, or refuses.
    pub fn command(&self, words: &[&str]) -> Value {
        self.raw().demand(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// The name of a key's lock in the database: prefix and key, nothing else.
    #[must_use]
    pub fn physical(&self, key: &Key) -> String {
        format!("{}{}", self.access.prefix, key.as_str())
    }

    /// How many requests came over the line so far. Where the line is encrypted, how many pieces.
    #[must_use]
    pub fn line_requests(&self) -> u64 {
        self.line.requests()
    }

    /// The URL by which clients come in over the line.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_over(&self.line)
    }

    fn url_over(&self, line: &Proxy) -> String {
        if self.access.unix {
            let path = percent_path(&self.server.socket().to_string_lossy());
            return format!("redis+unix://{path}?db={}", self.access.database);
        }
        let scheme = if self.access.tls { "rediss" } else { "redis" };
        let login = match &self.access.password {
            Some(password) => format!(":{}@", percent(password)),
            None => String::new(),
        };
        let mut url = format!("{scheme}://{login}{}/{}", line.address(), self.access.database);
        url.push_str(&format!("?prefix={}", percent(&self.access.prefix)));
        if self.access.tls {
            url.push_str(&format!("&ca={}", percent(&self.server.certificate().to_string_lossy())));
        }
        url
    }

    async fn open(&self, line: &Proxy) -> (Arc<dyn Engine>, Background) {
        let background = background();
        let url = self.url_over(line);
        let engine = redis::open(&url, &background).await;
        (engine.unwrap_or_else(|error| panic!("{error}")), background)
    }

    /// Everything in the database, counters included.
    #[must_use]
    pub fn all_keys(&self) -> Vec<String> {
        let mut names = self.command(&["KEYS", "*"]).texts();
        names.sort_unstable();
        names
    }

    /// The names of the counters.
    #[must_use]
    pub fn counters(&self) -> Vec<String> {
        self.all_keys().into_iter().filter(|name| self.is_counter(name)).collect()
    }

    /// Whether a name is that of the counter of tokens or what belongs to it, meant to stay for ever.
    fn is_counter(&self, name: &str) -> bool {
        name.strip_prefix(&self.access.prefix)
            .is_some_and(|name| ["tenure:token", "tenure:token:run"].contains(&name))
    }
}

fn line_to(server: &RedisServer, tls: bool) -> Proxy {
    let line = if tls {
        let address = server.tls_address().expect("it was started with TLS");
        Proxy::start(address, Opaque)
    } else {
        Proxy::start(server.address(), Resp)
    };
    line.expect("a test can start a proxy")
}

/// Percent-encodes all that is not plain.
fn percent(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}

/// Percent-encodes a path.
fn percent_path(path: &str) -> String {
    path.split('/').map(percent).collect::<Vec<_>>().join("/")
}

/// The owner in a lock's value, or the whole value if it is not one of Tenure's.
fn owner_in(value: String) -> String {
    let owner = value.strip_prefix("t1:").and_then(|rest| rest.split(':').next());
    owner.map(str::to_owned).unwrap_or(value)
}

#[async_trait]
impl Harness for RedisHarness {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        self.open(&self.line).await.0
    }

    async fn tenure(&self) -> Tenure {
        let (engine, background) = self.open(&self.line).await;
        Tenure::with_background(engine, background)
    }

    async fn truth(&self, key: &Key) -> Vec<String> {
        self.command(&["GET", &self.physical(key)]).text().map(owner_in).into_iter().collect()
    }

    async fn remaining(&self, key: &Key) -> Option<Duration> {
        let left = self.command(&["PTTL", &self.physical(key)]).int();
        left.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis)
    }

    async fn evict(&self, key: &Key) {
        self.command(&["DEL", &self.physical(key)]);
    }

    async fn usurp(&self, key: &Key, term: Duration) {
        let term = term.as_millis().to_string();
        self.command(&["SET", &self.physical(key), "somebody-else", "PX", &term]);
    }

    async fn leftovers(&self) -> Vec<String> {
        self.all_keys().into_iter().filter(|name| !self.is_counter(name)).collect()
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(300)
    }

    fn faults(&self) -> Option<&dyn Faults> {
        (!self.access.unix).then_some(self as &dyn Faults)
    }

    fn redis(&self) -> Option<&RedisHarness> {
        Some(self)
    }
}

#[async_trait]
impl Faults for RedisHarness {
    fn line(&self) -> &Proxy {
        &self.line
    }

    async fn pause(&self) {
        self.server.pause().expect("the server runs");
    }

    async fn resume(&self) {
        self.server.resume().expect("the server runs");
    }

    async fn restart(&self, data: Data) {
        self.server.restart(data).unwrap_or_else(|error| panic!("{error}"));
    }

    async fn lone_client(&self) -> LoneClient {
        let line = line_to(&self.server, self.access.tls);
        let (engine, background) = self.open(&line).await;
        LoneClient { line, tenure: Tenure::with_background(engine, background) }
    }
}
