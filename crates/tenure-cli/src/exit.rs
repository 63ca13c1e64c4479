//! The exit codes of every `tenure` command, in one table.

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};

use tenure::{Error, ErrorKind};

/// How `tenure` ends, apart from the child's own code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The child ended by itself, or a signal ended it or us: its own code, or 128 + the signal.
    Own(u8),
    Usage,
    CouldNotRun,
    Bug,
    NotAcquired,
    Lost,
    NotExecutable,
    NotFound,
}

impl Exit {
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Own(code) => code,
            Exit::Usage => 64,
            Exit::CouldNotRun => 69,
            Exit::Bug => 70,
            Exit::NotAcquired => 75,
            Exit::Lost => 76,
            Exit::NotExecutable => 126,
            Exit::NotFound => 127,
        }
    }

    /// As a shell reports it.
    pub(crate) fn of_signal(signal: i32) -> Exit {
        Exit::Own(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }

    /// As the child ended.
    pub(crate) fn of_child(status: ExitStatus) -> Exit {
        match (status.code(), status.signal()) {
            (Some(code), _) => Exit::Own(u8::try_from(code).unwrap_or(u8::MAX)),
            (None, Some(signal)) => Exit::of_signal(signal),
            (None, None) => Exit::Bug,
        }
    }

    /// What an error of the library means for the caller of the command.
    pub(crate) fn of_error(error: &Error) -> Exit {
        match error.kind() {
            ErrorKind::Invalid | ErrorKind::Unsupported => Exit::Usage,
            ErrorKind::NotALock | ErrorKind::Denied | ErrorKind::Unavailable => Exit::CouldNotRun,
            // A full queue is somebody else's turn, too: try later.
            ErrorKind::TimedOut | ErrorKind::Full => Exit::NotAcquired,
            ErrorKind::Lost => Exit::Lost,
            _ => Exit::Bug,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.code())
    }
}

/// The table, as `--help` shows it and `docs/reference.md` repeats it.
pub(crate) const HELP: &str = "\
Exit codes:
  the command's own code, or 128 + the number of the signal that ended it
  64   wrong usage or input: an option, the key, a duration, the engine's URL
  69   the engine could not be reached or refused, or the lock could not be used
  70   a bug of ours, or the process that guards the command was killed
  75   not acquired in time
  76   the lock was lost, or held for all of --max-hold; the command was ended
  126  the command could not be executed
  127  the command was not found
  130  interrupted while waiting (128 + the signal's number)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_exit_codes() {
        let table = [
            (Exit::Own(3), 3),
            (Exit::of_signal(15), 143),
            (Exit::of_signal(9), 137),
            (Exit::of_signal(2), 130),
            (Exit::Usage, 64),
            (Exit::CouldNotRun, 69),
            (Exit::Bug, 70),
            (Exit::NotAcquired, 75),
            (Exit::Lost, 76),
            (Exit::NotExecutable, 126),
            (Exit::NotFound, 127),
        ];
        for (exit, code) in table {
            assert_eq!(exit.code(), code, "{exit:?}");
        }
    }

    #[test]
    fn golden_exit_codes_of_errors() {
        let table = [
            (ErrorKind::Invalid, 64),
            (ErrorKind::Unsupported, 64),
            (ErrorKind::NotALock, 69),
            (ErrorKind::Denied, 69),
            (ErrorKind::Unavailable, 69),
            (ErrorKind::TimedOut, 75),
            (ErrorKind::Full, 75),
            (ErrorKind::Lost, 76),
            (ErrorKind::Closed, 70),
            (ErrorKind::Internal, 70),
        ];
        for (kind, code) in table {
            assert_eq!(Exit::of_error(&Error::new(kind, "x")).code(), code, "{kind:?}");
        }
    }

    #[test]
    fn a_childs_end_is_told_as_a_shell_tells_it() {
        assert_eq!(Exit::of_child(ExitStatus::from_raw(7 << 8)), Exit::Own(7));
        assert_eq!(Exit::of_child(ExitStatus::from_raw(9)), Exit::Own(137));
        assert_eq!(Exit::of_child(ExitStatus::from_raw(255 << 8)), Exit::Own(255));
    }

    /// Help, page and program say the same.
    #[test]
    fn the_reference_page_has_every_code() {
        let page = include_str!("../../../docs/reference.md");
        for line in HELP.lines().skip(2) {
            let (code, meaning) = line.trim().split_once(' ').unwrap();
            let row = format!("| {code} | {} |", meaning.trim());
            assert!(page.contains(&row), "docs/reference.md lacks this row:\n{row}");
        }
    }
}
