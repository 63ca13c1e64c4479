//! A SQLite file in a temporary folder. The truth is asked with a connection of its own and plain SQL.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rand::Rng;
use rusqlite::Connection;
use tempfile::TempDir;
use tenure::engine::{Engine, sqlite};
use tenure::{Background, Key, Moment, Tenure};

use super::{Faults, Harness, RedisHarness, background};

/// A file of its own.
#[derive(Debug)]
pub struct SqliteHarness {
    // Before the folder: a file is closed before it is deleted.
    raw: Mutex<Option<Connection>>,
    folder: TempDir,
}

impl Default for SqliteHarness {
    fn default() -> SqliteHarness {
        let folder = tempfile::Builder::new().prefix("tenure-sqlite-").tempdir();
        SqliteHarness { raw: Mutex::default(), folder: folder.expect("a test can make a folder") }
    }
}

impl SqliteHarness {
    /// The file.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("locks.sqlite")
    }

    /// The folder it is in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The URL of the file.
    #[must_use]
    pub fn url(&self) -> String {
        sqlite::url_of(&self.path())
    }

    /// Every file beside the database, by its name, in order; folders only by what is in them.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
                match entry.path().is_dir() {
                    true => folders.push(entry.path()),
                    false => files.push(entry.file_name().to_string_lossy().into_owned()),
                }
            }
        }
        files.sort_unstable();
        files
    }

    /// Asks the file, once there is one; `None` before.
    fn ask<T>(&self, ask: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Option<T> {
        let mut raw: MutexGuard<'_, Option<Connection>> =
            self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        if raw.is_none() {
            if !self.path().exists() {
                return None;
            }
            let connection = Connection::open(self.path()).expect("the truth can be asked");
            connection.busy_timeout(Duration::from_secs(5)).expect("a time limit");
            *raw = Some(connection);
        }
        let connection = raw.as_ref()?;
        Some(ask(connection).unwrap_or_else(|error| panic!("the truth cannot be asked: {error}")))
    }

    async fn open(&self) -> (Arc<dyn Engine>, Background) {
        let background = background();
        let engine = sqlite::open(&self.url(), &background).await;
        (engine.unwrap_or_else(|error| panic!("{error}")), background)
    }
}

fn now() -> i64 {
    i64::try_from(Moment::now().as_nanos()).expect("a machine is not up for centuries")
}

fn hex(bytes: [u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(bytes))
}

#[async_trait]
impl Harness for SqliteHarness {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        self.open().await.0
    }

    async fn tenure(&self) -> Tenure {
        let (engine, background) = self.open().await;
        Tenure::with_background(engine, background)
    }

    async fn truth(&self, key: &Key) -> Vec<String> {
        let owners = self.ask(|raw| {
            let mut owners = raw.prepare("SELECT owner FROM holds WHERE key = ?1 AND until > ?2")?;
            owners.query_map((key.as_str(), now()), |row| row.get(0).map(hex))?.collect()
        });
        owners.unwrap_or_default()
    }

    async fn remaining(&self, key: &Key) -> Option<Duration> {
        let asked = now();
        let longest = "SELECT max(until) FROM holds WHERE key = ?1 AND until > ?2";
        let until =
            self.ask(|raw| raw.query_row(longest, (key.as_str(), asked), |row| row.get::<_, Option<i64>>(0)));
        let until = until.flatten()?;
        u64::try_from(until - asked).ok().map(Duration::from_nanos)
    }

    async fn evict(&self, key: &Key) {
        self.ask(|raw| raw.execute("DELETE FROM holds WHERE key = ?1", [key.as_str()]));
    }

    async fn usurp(&self, key: &Key, term: Duration) {
        let until = now() + i64::try_from(term.as_nanos()).expect("a short term");
        let (owner, client): ([u8; 16], [u8; 16]) = (rand::rng().random(), rand::rng().random());
        self.ask(|raw| {
            let whole = raw.unchecked_transaction()?;
            whole.execute("DELETE FROM holds WHERE key = ?1", [key.as_str()])?;
            let usurper = "INSERT INTO holds VALUES (?1, ?2, 0, 0, 0, ?3, ?4, 1, 'somebody-else', 0, x'')";
            whole.execute(usurper, (key.as_str(), owner, client, until))?;
            whole.commit()
        });
    }

    async fn leftovers(&self) -> Vec<String> {
        let left = self.ask(|raw| {
            let mut left = raw.prepare(
                "SELECT 'hold of ' || key FROM holds WHERE until > ?1
                 UNION ALL SELECT 'place at ' || key FROM places WHERE deadline > ?1",
            )?;
            left.query_map([now()], |row| row.get(0))?.collect()
        });
        left.unwrap_or_default()
    }

    fn ttl(&self) -> Duration {
        Duration::from_millis(300)
    }

    fn faults(&self) -> Option<&dyn Faults> {
        None
    }

    fn redis(&self) -> Option<&RedisHarness> {
        None
    }
}
