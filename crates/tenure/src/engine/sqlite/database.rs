//! The file: how it is opened, what it must be, and how it is known to be still there.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::clock::{Boot, wall_micros};
use super::failure::{explain, explain_io, is_busy};
use crate::error::{Error, ErrorKind, Result};
use crate::time::Moment;

/// The version of the tables below. A file of a newer one is refused.
const VERSION: i64 = 1;
/// Says in the file's head that it is one of Tenure's: "TENU".
const APPLICATION: i64 = 0x5445_4e55;
/// How long SQLite waits for its lock in one go. Whoever waits for an answer has a limit of his own.
const BUSY: Duration = Duration::from_millis(250);
/// How long opening may wait for others.
const OPENING: Duration = Duration::from_secs(2);
/// Statements kept ready.
const STATEMENTS: usize = 48;

const TABLES: &str = "
CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), raw INTEGER NOT NULL, boot TEXT NOT NULL) STRICT;
CREATE TABLE holds (
    key TEXT NOT NULL, owner BLOB NOT NULL, mode INTEGER NOT NULL, take INTEGER NOT NULL, total INTEGER NOT NULL,
    client BLOB NOT NULL, until INTEGER NOT NULL, raw INTEGER NOT NULL, host TEXT NOT NULL, since INTEGER NOT NULL,
    value BLOB NOT NULL, PRIMARY KEY (key, owner)) STRICT, WITHOUT ROWID;
CREATE TABLE places (
    key TEXT NOT NULL, seq INTEGER NOT NULL, owner BLOB NOT NULL, mode INTEGER NOT NULL, take INTEGER NOT NULL,
    total INTEGER NOT NULL, client BLOB NOT NULL, term INTEGER NOT NULL, deadline INTEGER NOT NULL,
    host TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (key, seq)) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX places_by_owner ON places (owner, key);
CREATE TABLE notes (
    key TEXT PRIMARY KEY, record BLOB NOT NULL, stored INTEGER NOT NULL) STRICT, WITHOUT ROWID;
";

/// File systems that several machines may share. There `flock` and the shared memory of SQLite's log
/// hold for one machine only, if at all. With FUSE it cannot be told what is behind it.
const SHARED_FILE_SYSTEMS: [(u32, &str); 17] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x564c, "NCP"),
    (0x7375_7245, "Coda"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x6573_5546, "FUSE or virtiofs"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x786f_4256, "a VirtualBox shared folder"),
];

/// An open database.
pub(super) struct Database {
    pub(super) connection: Connection,
    /// Where it really is: all who use it by whatever name meet there.
    pub(super) path: PathBuf,
    identity: (u64, u64),
}

impl Database {
    /// Opens the file, or makes it. What was held in an earlier boot of the machine is removed.
    pub(super) fn open(path: &Path, boot: &Boot) -> Result<Database> {
        let given = std::path::absolute(path).map_err(|error| explain_io(error, "there is no", path))?;
        let folder = given.parent().unwrap_or(Path::new("/"));
        let folder =
            std::fs::canonicalize(folder).map_err(|error| explain_io(error, "there is no folder", folder))?;
        if given.is_dir() {
            let what = format!("{} is a folder", given.display());
            return Err(Error::new(ErrorKind::Invalid, what).advice("name a file in it"));
        }
        refuse_shared(&folder)?;
        let failed = |error: rusqlite::Error| explain(error, &given);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&given, flags).map_err(failed)?;
        let path = std::fs::canonicalize(&given).map_err(|error| explain_io(error, "there is no", &given))?;
        if let Some(folder) = path.parent() {
            // Elsewhere, if the name was a symbolic link.
            refuse_shared(folder)?;
        }
        let metadata = std::fs::metadata(&path).map_err(|error| explain_io(error, "there is no", &path))?;
        if metadata.nlink() > 1 {
            let what = format!("{} has several names (hard links)", path.display());
            return Err(Error::new(ErrorKind::Unsupported, what)
                .advice("remove all but one: SQLite's log beside each would be another one"));
        }
        let mut database = Database { connection, path, identity: (metadata.dev(), metadata.ino()) };
        database.prepare(boot)?;
        Ok(database)
    }

    fn prepare(&mut self, boot: &Boot) -> Result<()> {
        let path = self.path.clone();
        let failed = |error: rusqlite::Error| explain(error, &path);
        self.connection.busy_timeout(OPENING).map_err(failed)?;
        self.connection.set_prepared_statement_cache_capacity(STATEMENTS);
        if self.connection.is_readonly("main").map_err(failed)? {
            return Err(Error::new(ErrorKind::Denied, format!("{} cannot be written", path.display()))
                .advice("give the user write access, or name another file"));
        }
        if !self.is_ours()? {
            self.check_foreign()?;
        }
        let mode = self.write_ahead().map_err(failed)?;
        if mode != "wal" {
            let what = format!("{} cannot have a write-ahead log here (SQLite says {mode})", path.display());
            return Err(Error::new(ErrorKind::Unsupported, what).advice("put it on a local disk"));
        }
        self.connection.pragma_update(None, "synchronous", "NORMAL").map_err(failed)?;
        self.make_tables(boot).map_err(failed)?;
        self.forget_other_boots(boot).map_err(failed)?;
        self.connection.busy_timeout(BUSY).map_err(failed)
    }

    /// Switches to a write-ahead log. Where two processes open a new file at once, SQLite refuses one of them
    /// without asking its busy handler, since both read and want to write.
    fn write_ahead(&self) -> rusqlite::Result<String> {
        let until = Moment::now() + OPENING;
        loop {
            match self.connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)) {
                Err(error) if is_busy(&error) && Moment::now() < until => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                answer => return answer,
            }
        }
    }

    fn number(&self, pragma: &str) -> rusqlite::Result<i64> {
        self.connection.pragma_query_value(None, pragma, |row| row.get(0))
    }

    /// Whether it is a database of Tenure's, of this version; a newer one is refused.
    fn is_ours(&self) -> Result<bool> {
        let failed = |error: rusqlite::Error| explain(error, &self.path);
        if self.number("application_id").map_err(failed)? != APPLICATION {
            return Ok(false);
        }
        match self.number("user_version").map_err(failed)? {
            VERSION => Ok(true),
            newer => Err(Error::new(
                ErrorKind::Unsupported,
                format!("{} is of version {newer}, and this Tenure knows {VERSION}", self.path.display()),
            )
            .advice("use one version of Tenure for it, the newer one")),
        }
    }

    /// A database that is not Tenure's must be empty.
    fn check_foreign(&self) -> Result<()> {
        let failed = |error: rusqlite::Error| explain(error, &self.path);
        let tables =
            "SELECT count(*) FROM sqlite_master WHERE name NOT IN ('state', 'holds', 'places', 'notes')
                      AND name NOT LIKE 'places_by_owner' AND name NOT LIKE 'sqlite_%'";
        let foreign: i64 = self.connection.query_row(tables, [], |row| row.get(0)).map_err(failed)?;
        // Between the two questions somebody may have made the tables.
        if foreign == 0 || self.number("application_id").map_err(failed)? == APPLICATION {
            return Ok(());
        }
        let what = format!("{} is a database of another program, and was left alone", self.path.display());
        Err(Error::new(ErrorKind::Invalid, what).advice("name another file"))
    }

    fn make_tables(&mut self, boot: &Boot) -> rusqlite::Result<()> {
        if self.number("application_id")? == APPLICATION {
            return Ok(());
        }
        let making = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let made: i64 = making.pragma_query_value(None, "application_id", |row| row.get(0))?;
        if made != APPLICATION {
            making.execute_batch(TABLES)?;
            let now = i64::try_from(wall_micros()).unwrap_or(0);
            making.execute("INSERT INTO state VALUES (1, ?1, ?2)", (now, &*boot.0))?;
            making.pragma_update(None, "user_version", VERSION)?;
            making.pragma_update(None, "application_id", APPLICATION)?;
        }
        making.commit()
    }

    /// Nothing that was held before the machine started can be held now, and its times are of another clock.
    fn forget_other_boots(&mut self, boot: &Boot) -> rusqlite::Result<()> {
        let stored = |connection: &Connection| {
            connection.query_row("SELECT boot FROM state", [], |row| row.get::<_, String>(0))
        };
        if stored(&self.connection)? == *boot.0 {
            return Ok(());
        }
        let forgetting = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if stored(&forgetting)? != *boot.0 {
            forgetting.execute_batch("DELETE FROM holds; DELETE FROM places;")?;
            forgetting.execute("UPDATE state SET boot = ?1", [&*boot.0])?;
        }
        forgetting.commit()
    }

    /// Whether the file is still the one that its name leads to. SQLite would go on with one that was
    /// deleted, and nobody else would see what is written there.
    pub(super) fn is_in_place(&self) -> bool {
        rustix::fs::stat(&self.path).is_ok_and(|there| (there.st_dev, there.st_ino) == self.identity)
    }
}

fn refuse_shared(folder: &Path) -> Result<()> {
    let found = rustix::fs::statfs(folder)
        .map_err(|error| explain_io(io::Error::from(error), "there is no folder", folder))?;
    // The kernel's numbers have 32 bits, whatever the type they come in.
    refuse_type(u32::try_from(i128::from(found.f_type) & 0xffff_ffff).unwrap_or(0), folder)
}

fn refuse_type(kind: u32, folder: &Path) -> Result<()> {
    match SHARED_FILE_SYSTEMS.iter().find(|(number, _)| *number == kind) {
        None => Ok(()),
        Some((_, name)) => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{} is on {name}, which other machines may share: locks there do not exclude",
                folder.display()
            ),
        )
        .advice("put the file on a local disk; for several machines take an engine with a server")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_refused_by_name_and_local_ones_are_not() {
        for (kind, name) in
            [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0x0102_1997, "9P"), (0x6573_5546, "FUSE")]
        {
            let error = refuse_type(kind, Path::new("/mnt/shared")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(name) && error.to_string().contains("/mnt/shared"), "{error}");
        }
        // ext, tmpfs, btrfs, xfs, overlayfs, zfs
        for kind in [0xef53, 0x0102_1994, 0x9123_683e, 0x5846_5342, 0x794c_7630, 0x2fc1_2fc1] {
            refuse_type(kind, Path::new("/x")).unwrap();
        }
    }
}
