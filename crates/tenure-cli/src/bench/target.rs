//! What is measured: the engine behind a URL, and names that nobody else uses.

use std::hash::{BuildHasher, Hasher};
use std::net::{SocketAddr, ToSocketAddrs};

use percent_encoding::percent_decode_str;
use tenure::Tenure;
use url::Url;

use super::raw::Connection;
use super::{Place, Result};

/// An engine and the names of this measurement.
#[derive(Clone)]
pub(super) struct Target {
    /// For connecting only: it may hold a password.
    url: String,
    /// What every key begins with.
    keys: String,
    /// The server itself, where the raw limits can be measured.
    pub(super) server: Option<Server>,
    /// Whether two clients of this URL see each other's locks.
    pub(super) is_shared: bool,
}

/// A Redis server, spoken to without Tenure.
#[derive(Clone)]
pub(super) struct Server {
    url: Url,
    address: SocketAddr,
    /// What every name on the server begins with: locks, helpers, the counter.
    pub(super) prefix: String,
}

impl Target {
    /// Reads a URL. One that is wrong is left for the engine to refuse.
    pub(super) fn of(url: &str) -> Target {
        let own = format!("tenure-bench:{:016x}:", random());
        match Server::of(url, &own) {
            Some(server) => Target {
                url: server.url.to_string(),
                keys: String::new(),
                server: Some(server),
                is_shared: true,
            },
            None => {
                let is_shared = !url.starts_with("memory:");
                Target { url: url.to_owned(), keys: own, server: None, is_shared }
            }
        }
    }

    pub(super) async fn connect(&self, place: Place) -> tenure::Result<Tenure> {
        match place {
            Place::Own => tenure::connect(&self.url).await,
            Place::Beside => tenure::connect_beside(&self.url).await,
        }
    }

    /// A key of this measurement.
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.keys)
    }
}

impl Server {
    /// Only over plain TCP. The engine gets a prefix, so that helpers and the counter are ours, too.
    fn of(text: &str, own: &str) -> Option<Server> {
        let mut url = Url::parse(text).ok().filter(|url| url.scheme() == "redis")?;
        let host = url.host_str().filter(|host| !host.is_empty())?.trim_matches(['[', ']']).to_owned();
        let address = (host, url.port().unwrap_or(6379)).to_socket_addrs().ok()?.next()?;
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        let theirs = pairs.iter().rev().find(|(name, _)| name == "prefix").map_or("", |(_, value)| value);
        let prefix = format!("{theirs}{own}");
        let others = pairs.iter().filter(|(name, _)| name != "prefix");
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(others).append_pair("prefix", &prefix);
        url.set_query(Some(&query.finish()));
        Some(Server { url, address, prefix })
    }

    /// The engine by another way to the same server.
    pub(super) fn by_way_of(&self, address: SocketAddr) -> Result<Target> {
        let mut url = self.url.clone();
        let refused = "the address of the server cannot be replaced";
        url.set_ip_host(address.ip()).map_err(|()| refused)?;
        url.set_port(Some(address.port())).map_err(|()| refused)?;
        Ok(Target { url: url.to_string(), keys: String::new(), server: None, is_shared: true })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A connection that is logged in.
    pub(super) fn open(&self) -> Result<Connection> {
        let mut connection = Connection::open(self.address)?;
        if let Some(password) = self.url.password() {
            let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
            let (user, password) = (decoded(self.url.username()), decoded(password));
            let words: &[&str] =
                if user.is_empty() { &["AUTH", &password] } else { &["AUTH", &user, &password] };
            connection.ask(words)?;
        }
        let database = self.url.path().trim_matches('/');
        if !database.is_empty() {
            connection.ask(&["SELECT", database])?;
        }
        Ok(connection)
    }

    /// A field of `INFO`.
    pub(super) fn info(&self, section: &str, field: &str) -> Result<String> {
        let mut connection = self.open()?;
        let text = String::from_utf8_lossy(connection.ask(&["INFO", section])?).into_owned();
        let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        Ok(found.ok_or_else(|| format!("the server's INFO has no {field}"))?.trim().to_owned())
    }

    /// Removes every name of this measurement; how many there were.
    pub(super) fn remove_all(&self) -> Result<usize> {
        let mut connection = self.open()?;
        let pattern = format!("{}*", escape_glob(&self.prefix));
        let (mut cursor, mut removed) = ("0".to_owned(), 0);
        loop {
            let reply = connection.ask(&["SCAN", &cursor, "MATCH", &pattern, "COUNT", "1000"])?;
            let mut words = super::raw::bulk_strings(reply);
            cursor = if words.is_empty() { "0".to_owned() } else { words.remove(0) };
            if !words.is_empty() {
                removed += words.len();
                let names = words.iter().map(String::as_str);
                connection.ask(&["DEL"].into_iter().chain(names).collect::<Vec<_>>())?;
            }
            if cursor == "0" {
                return Ok(removed);
            }
        }
    }
}

fn escape_glob(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        if r"\*?[]".contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

/// The standard library draws the keys of its hash tables from the system's random numbers.
fn random() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_the_url_stays_before_ours() {
        let target = Target::of("redis://u:p%40w@127.0.0.1:7000/3?prefix=a%3A&ttl=5s");
        let server = target.server.unwrap();
        assert!(server.prefix.starts_with("a:tenure-bench:"), "{}", server.prefix);
        let read: Vec<_> = server.url.query_pairs().into_owned().collect();
        assert_eq!(read[0], ("ttl".to_owned(), "5s".to_owned()));
        assert_eq!(read[1], ("prefix".to_owned(), server.prefix.clone()));
        assert!(target.url.starts_with("redis://u:p%40w@127.0.0.1:7000/3?"));
    }

    #[test]
    fn elsewhere_the_keys_are_ours() {
        for url in ["memory:", "rediss://h", "sqlite:x", "nonsense"] {
            let target = Target::of(url);
            assert!(target.server.is_none());
            assert_eq!(target.url, url);
            assert!(target.key("x").starts_with("tenure-bench:"), "{}", target.key("x"));
        }
        assert_eq!(escape_glob("a*[b]\\"), r"a\*\[b\]\\");
    }
}
