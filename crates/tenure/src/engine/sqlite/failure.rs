//! What SQLite's errors mean to a user.

use std::io;
use std::path::Path;

use rusqlite::ErrorCode;

use crate::error::{Error, ErrorKind};

/// Why a step at the database did not do what was asked.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The database failed. Nothing of the transaction may stay.
    Database(rusqlite::Error),
    /// The request is refused. What was written before stays, and is right.
    Refused(Error),
}

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Trouble {
        Trouble::Database(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Refused(error)
    }
}

/// What a step answers.
pub(super) type Step<T> = Result<T, Trouble>;

/// Whether another process has the lock of the database.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Says what happened at the file `path`, and what to do. Nothing has taken effect: a transaction that
/// fails is rolled back as a whole.
pub(super) fn explain(error: rusqlite::Error, path: &Path) -> Error {
    let file = path.display();
    let (kind, what, advice) = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => (
            ErrorKind::Unavailable,
            format!("the disk is full, and {file} could not be written"),
            "free space there",
        ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            ErrorKind::Unavailable,
            format!("another process keeps {file} locked"),
            "look for one that is stopped in the middle of a write",
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => (
            ErrorKind::Denied,
            format!("{file}, or its folder, cannot be written"),
            "give the user write access to both, or name another file",
        ),
        Some(ErrorCode::CannotOpen) => (
            ErrorKind::Denied,
            format!("{file}, or a file beside it, cannot be opened"),
            "give the user write access to the folder, or name another file",
        ),
        Some(ErrorCode::NotADatabase) => (
            ErrorKind::Invalid,
            format!("{file} is no SQLite database, and was left alone"),
            "name another file",
        ),
        Some(ErrorCode::DatabaseCorrupt) => (
            ErrorKind::Internal,
            format!("{file} is damaged"),
            "stop all that use it and delete it with its -wal and -shm; tokens grow on",
        ),
        Some(ErrorCode::SystemIoFailure) => (
            ErrorKind::Unavailable,
            format!("{file} could not be read or written ({})", extended(&error)),
            "check the disk and whether it is full; if somebody deleted or replaced the file, stop all that use it, \
             and delete it with its -wal and -shm",
        ),
        _ => (ErrorKind::Internal, format!("SQLite answered \"{error}\" for {file}"), "please report this"),
    };
    Error::new(kind, what).advice(advice).source_error(error)
}

/// SQLite's number for what went wrong, which its text leaves out.
fn extended(error: &rusqlite::Error) -> String {
    error
        .sqlite_error()
        .map_or_else(|| error.to_string(), |inner| format!("SQLite's code {}: {inner}", inner.extended_code))
}

/// Says what happened to a file that is not the database itself.
pub(super) fn explain_io(error: io::Error, what: &str, path: &Path) -> Error {
    let (kind, advice) = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (ErrorKind::Denied, "give the user write access to the folder, or name another file")
        }
        io::ErrorKind::NotFound => (ErrorKind::Invalid, "make the folder first, or name another file"),
        io::ErrorKind::StorageFull => (ErrorKind::Unavailable, "free space there"),
        _ => (ErrorKind::Unavailable, "check the folder and its disk"),
    };
    Error::new(kind, format!("{what} {}: {error}", path.display())).advice(advice).source_error(error)
}
