//! The rows: one function for each statement.

use rusqlite::types::Type;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row};

use super::clients::ClientId;
use crate::engine::Mode;
use crate::key::{Key, Owner};

/// A hold, as it is decided by.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) owner: Owner,
    pub(super) mode: Mode,
    pub(super) client: ClientId,
    pub(super) until: i64,
    pub(super) host: String,
}

/// A hold, as it is shown.
pub(super) struct Shown {
    pub(super) held: Held,
    pub(super) raw: u64,
    pub(super) since: u64,
    pub(super) value: Vec<u8>,
}

/// A place in a queue.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) seq: i64,
    pub(super) owner: Owner,
    pub(super) mode: Mode,
    pub(super) client: ClientId,
    /// Nanoseconds.
    pub(super) term: i64,
    pub(super) deadline: i64,
    pub(super) host: String,
    pub(super) value: Vec<u8>,
}

/// The tables. Times are nanoseconds of the store's clock.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a>(pub(super) &'a Connection);

type Sql<T> = rusqlite::Result<T>;

fn owner_bytes(owner: Owner) -> [u8; 16] {
    owner.id().to_be_bytes()
}

fn mode_numbers(mode: Mode) -> (i64, i64, i64) {
    match mode {
        Mode::Exclusive => (0, 0, 0),
        Mode::Shared => (1, 0, 0),
        Mode::Permits { take, of } => (2, i64::from(take), i64::from(of)),
    }
}

fn bad(column: usize) -> rusqlite::Error {
    rusqlite::Error::InvalidColumnType(column, "a value Tenure does not write".to_owned(), Type::Blob)
}

/// The mode in three columns from `first`.
fn mode(row: &Row<'_>, first: usize) -> Sql<Mode> {
    let number = |at: usize| -> Sql<u32> { row.get(at) };
    match number(first)? {
        0 => Ok(Mode::Exclusive),
        1 => Ok(Mode::Shared),
        2 => Ok(Mode::Permits { take: number(first + 1)?, of: number(first + 2)? }),
        _ => Err(bad(first)),
    }
}

fn id(row: &Row<'_>, column: usize) -> Sql<u128> {
    row.get::<_, [u8; 16]>(column).map(u128::from_be_bytes)
}

fn count(row: &Row<'_>, column: usize) -> Sql<u64> {
    u64::try_from(row.get::<_, i64>(column)?).map_err(|_| bad(column))
}

fn length(row: &Row<'_>, column: usize) -> Sql<usize> {
    usize::try_from(count(row, column)?).map_err(|_| bad(column))
}

fn held(row: &Row<'_>) -> Sql<Held> {
    Ok(Held {
        owner: Owner::from_id(id(row, 0)?),
        mode: mode(row, 1)?,
        client: ClientId(id(row, 4)?),
        until: row.get(5)?,
        host: row.get(6)?,
    })
}

impl<'a> Rows<'a> {
    fn ready(self, sql: &str) -> Sql<CachedStatement<'a>> {
        self.0.prepare_cached(sql)
    }

    /// The largest number so far, and the boot it belongs to.
    pub(super) fn state(self) -> Sql<(u64, String)> {
        self.ready("SELECT raw, boot FROM state")?.query_row([], |row| Ok((count(row, 0)?, row.get(1)?)))
    }

    pub(super) fn set_counter(self, raw: u64) -> Sql<()> {
        let raw = i64::try_from(raw).unwrap_or(i64::MAX);
        self.ready("UPDATE state SET raw = ?1")?.execute([raw]).map(drop)
    }

    pub(super) fn holds(self, key: &Key) -> Sql<Vec<Held>> {
        let mut all =
            self.ready("SELECT owner, mode, take, total, client, until, host FROM holds WHERE key = ?1")?;
        all.query_map([key.as_str()], held)?.collect()
    }

    pub(super) fn shown(self, key: &Key) -> Sql<Vec<Shown>> {
        let mut all = self.ready(
            "SELECT owner, mode, take, total, client, until, host, raw, since, value FROM holds WHERE key = ?1",
        )?;
        let shown = |row: &Row<'_>| {
            Ok(Shown { held: held(row)?, raw: count(row, 7)?, since: count(row, 8)?, value: row.get(9)? })
        };
        all.query_map([key.as_str()], shown)?.collect()
    }

    pub(super) fn add_hold(self, key: &Key, held: &Held, raw: u64, since: u64, value: &[u8]) -> Sql<()> {
        let (mode, take, total) = mode_numbers(held.mode);
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        self.ready("INSERT INTO holds VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)")?
            .execute((
                key.as_str(),
                owner_bytes(held.owner),
                mode,
                take,
                total,
                held.client.0.to_be_bytes(),
                held.until,
                number(raw),
                &held.host,
                number(since),
                value,
            ))
            .map(drop)
    }

    /// Another mode, value and number for a hold. Its client stays: whose life it hangs on does not change.
    pub(super) fn change_hold(self, key: &Key, owner: Owner, new: Mode, raw: u64, value: &[u8]) -> Sql<()> {
        let (mode, take, total) = mode_numbers(new);
        let raw = i64::try_from(raw).unwrap_or(i64::MAX);
        self.ready(
            "UPDATE holds SET mode = ?3, take = ?4, total = ?5, raw = ?6, value = ?7 WHERE key = ?1 AND owner = ?2",
        )?
        .execute((key.as_str(), owner_bytes(owner), mode, take, total, raw, value))
        .map(drop)
    }

    /// Prolongs a hold that has not run out, never shortens it. Answers until when it lasts.
    pub(super) fn prolong(self, key: &Key, owner: Owner, now: i64, until: i64) -> Sql<Option<i64>> {
        self.ready(
            "UPDATE holds SET until = max(until, ?4) WHERE key = ?1 AND owner = ?2 AND until > ?3 RETURNING until",
        )?
        .query_row((key.as_str(), owner_bytes(owner), now, until), |row| row.get(0))
        .optional()
    }

    /// Removes a hold. Answers until when it lasted.
    pub(super) fn remove_hold(self, key: &Key, owner: Owner) -> Sql<Option<i64>> {
        self.ready("DELETE FROM holds WHERE key = ?1 AND owner = ?2 RETURNING until")?
            .query_row((key.as_str(), owner_bytes(owner)), |row| row.get(0))
            .optional()
    }

    /// Removes a hold if it is still the grant of that number.
    pub(super) fn remove_grant(self, key: &Key, owner: Owner, raw: u64) -> Sql<bool> {
        let raw = i64::try_from(raw).unwrap_or(i64::MAX);
        let mut removing = self.ready("DELETE FROM holds WHERE key = ?1 AND owner = ?2 AND raw = ?3")?;
        Ok(removing.execute((key.as_str(), owner_bytes(owner), raw))? > 0)
    }

    pub(super) fn holds_until(self, key: &Key, owner: Owner) -> Sql<Option<i64>> {
        self.ready("SELECT until FROM holds WHERE key = ?1 AND owner = ?2")?
            .query_row((key.as_str(), owner_bytes(owner)), |row| row.get(0))
            .optional()
    }

    /// Who is next.
    pub(super) fn head(self, key: &Key) -> Sql<Option<Place>> {
        let place = |row: &Row<'_>| {
            Ok(Place {
                seq: row.get(0)?,
                owner: Owner::from_id(id(row, 1)?),
                mode: mode(row, 2)?,
                client: ClientId(id(row, 5)?),
                term: row.get(6)?,
                deadline: row.get(7)?,
                host: row.get(8)?,
                value: row.get(9)?,
            })
        };
        self.ready(
            "SELECT seq, owner, mode, take, total, client, term, deadline, host, value FROM places
             WHERE key = ?1 ORDER BY seq LIMIT 1",
        )?
        .query_row([key.as_str()], place)
        .optional()
    }

    /// How many wait, and the largest place.
    pub(super) fn queue(self, key: &Key) -> Sql<(usize, i64)> {
        self.ready("SELECT count(*), ifnull(max(seq), 0) FROM places WHERE key = ?1")?
            .query_row([key.as_str()], |row| Ok((length(row, 0)?, row.get(1)?)))
    }

    pub(super) fn waiters(self, key: &Key, now: i64) -> Sql<Vec<Owner>> {
        let mut all = self.ready("SELECT owner FROM places WHERE key = ?1 AND deadline > ?2 ORDER BY seq")?;
        all.query_map((key.as_str(), now), |row| id(row, 0).map(Owner::from_id))?.collect()
    }

    /// How many wait before a place, of those whose places have not run out.
    pub(super) fn ahead(self, key: &Key, seq: i64, now: i64) -> Sql<usize> {
        self.ready("SELECT count(*) FROM places WHERE key = ?1 AND seq < ?2 AND deadline > ?3")?
            .query_row((key.as_str(), seq, now), |row| length(row, 0))
    }

    pub(super) fn add_place(self, key: &Key, place: &Place) -> Sql<()> {
        let (mode, take, total) = mode_numbers(place.mode);
        self.ready("INSERT INTO places VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)")?
            .execute((
                key.as_str(),
                place.seq,
                owner_bytes(place.owner),
                mode,
                take,
                total,
                place.client.0.to_be_bytes(),
                place.term,
                place.deadline,
                &place.host,
                &place.value,
            ))
            .map(drop)
    }

    /// Refreshes a place that has not run out. Answers where it is.
    pub(super) fn refresh_place(self, key: &Key, owner: Owner, now: i64, deadline: i64) -> Sql<Option<i64>> {
        self.ready(
            "UPDATE places SET deadline = ?4 WHERE owner = ?2 AND key = ?1 AND deadline > ?3 RETURNING seq",
        )?
        .query_row((key.as_str(), owner_bytes(owner), now, deadline), |row| row.get(0))
        .optional()
    }

    pub(super) fn change_place(self, key: &Key, owner: Owner, value: &[u8]) -> Sql<()> {
        self.ready("UPDATE places SET value = ?3 WHERE owner = ?2 AND key = ?1")?
            .execute((key.as_str(), owner_bytes(owner), value))
            .map(drop)
    }

    /// Removes a place. Answers until when it was good.
    pub(super) fn remove_place(self, key: &Key, owner: Owner) -> Sql<Option<i64>> {
        self.ready("DELETE FROM places WHERE owner = ?2 AND key = ?1 RETURNING deadline")?
            .query_row((key.as_str(), owner_bytes(owner)), |row| row.get(0))
            .optional()
    }

    /// Removes the places of a key that have run out.
    pub(super) fn purge_places(self, key: &Key, now: i64) -> Sql<()> {
        self.ready("DELETE FROM places WHERE key = ?1 AND deadline <= ?2")?
            .execute((key.as_str(), now))
            .map(drop)
    }

    /// Removes all that a client has. Answers the keys that others wait for, to be handed on.
    pub(super) fn remove_client(self, client: ClientId) -> Sql<Vec<Key>> {
        let client = client.0.to_be_bytes();
        let mut waited = self.ready(
            "SELECT key FROM holds WHERE client = ?1 AND EXISTS (SELECT 1 FROM places WHERE places.key = holds.key)
             UNION SELECT key FROM places WHERE client = ?1",
        )?;
        let names: Vec<String> = waited.query_map([client], |row| row.get(0))?.collect::<Sql<_>>()?;
        self.ready("DELETE FROM holds WHERE client = ?1")?.execute([client])?;
        self.ready("DELETE FROM places WHERE client = ?1")?.execute([client])?;
        Ok(names.into_iter().filter_map(|name| Key::new(name).ok()).collect())
    }

    pub(super) fn has_client(self, client: ClientId) -> Sql<bool> {
        self.ready(
            "SELECT EXISTS (SELECT 1 FROM holds WHERE client = ?1) OR EXISTS (SELECT 1 FROM places WHERE client = ?1)",
        )?
        .query_row([client.0.to_be_bytes()], |row| row.get(0))
    }

    pub(super) fn note(self, key: &Key) -> Sql<Option<(Vec<u8>, u64)>> {
        self.ready("SELECT record, stored FROM notes WHERE key = ?1")?
            .query_row([key.as_str()], |row| Ok((row.get(0)?, count(row, 1)?)))
            .optional()
    }

    pub(super) fn set_note(self, key: &Key, record: &[u8], stored: u64) -> Sql<()> {
        let stored = i64::try_from(stored).unwrap_or(i64::MAX);
        self.ready("INSERT OR REPLACE INTO notes VALUES (?1, ?2, ?3)")?
            .execute((key.as_str(), record, stored))
            .map(drop)
    }

    /// Holds of keys after a name, in order: key, until when, whose.
    pub(super) fn holds_after(
        self,
        after: &str,
        inclusive: bool,
        most: usize,
    ) -> Sql<Vec<(String, i64, ClientId)>> {
        let sql = match inclusive {
            true => "SELECT key, until, client FROM holds WHERE key >= ?1 ORDER BY key LIMIT ?2",
            false => "SELECT key, until, client FROM holds WHERE key > ?1 ORDER BY key LIMIT ?2",
        };
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let row = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?, ClientId(id(row, 2)?)));
        self.ready(sql)?.query_map((after, most), row)?.collect()
    }

    /// The next key with a place after a name.
    pub(super) fn queue_after(self, after: &str) -> Sql<Option<String>> {
        self.ready("SELECT key FROM places WHERE key > ?1 ORDER BY key LIMIT 1")?
            .query_row([after], |row| row.get(0))
            .optional()
    }
}
