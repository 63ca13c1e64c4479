//! What worker processes work on: files that say afterwards whether exclusion held.
//!
//! A kill can come between any two system calls, but nothing that the kernel has taken is lost by it.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

/// A number in a file, which has no protection of its own: whoever adds to it at the same time as
/// another loses one. A kill leaves the old or the new number, never half of it.
#[derive(Clone, Debug)]
pub struct Counter(PathBuf);

impl Counter {
    /// The counter in a folder. A missing file stands for 0.
    #[must_use]
    pub fn within(folder: &Path) -> Counter {
        Counter(folder.join("counter"))
    }

    /// The number.
    ///
    /// # Errors
    /// If the file cannot be read or holds no number.
    pub fn read(&self) -> io::Result<u64> {
        match std::fs::read_to_string(&self.0) {
            Ok(text) => text.trim().parse().map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Puts another number in its place.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, number: u64) -> io::Result<()> {
        let new = self.0.with_extension(std::process::id().to_string());
        std::fs::write(&new, number.to_string())?;
        std::fs::rename(new, &self.0)
    }
}

/// Appends lines to a file, one system call each, so that lines of several processes do not mix.
#[derive(Debug)]
pub struct Journal(File);

impl Journal {
    /// Opens or creates it.
    ///
    /// # Errors
    /// If that fails.
    pub fn open(path: &Path) -> io::Result<Journal> {
        Ok(Journal(File::options().create(true).append(true).open(path)?))
    }

    /// Appends a line.
    ///
    /// # Errors
    /// If that fails.
    pub fn note(&mut self, line: &str) -> io::Result<()> {
        self.0.write_all(format!("{line}\n").as_bytes())
    }
}

/// A number that refuses writers with a stale token: the resource's half of fencing. Each step is
/// atomic by a lock of the file system, which ends with the process that holds it.
#[derive(Clone, Debug)]
pub struct Register(PathBuf);

/// What a register remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Registered {
    /// The largest token it has seen.
    pub mark: u64,
    /// The number.
    pub value: u64,
    /// How many writes it accepted ...
    pub accepted: u64,
    /// ... and how many it refused.
    pub refused: u64,
}

impl Register {
    /// The register in a folder.
    #[must_use]
    pub fn within(folder: &Path) -> Register {
        Register(folder.join("register"))
    }

    /// What it remembers now.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self) -> io::Result<Registered> {
        self.step(|state| *state)
    }

    /// The first act of a new holder: from now on no older one gets through. Answers the value, or
    /// `None` to a stale token.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn enter(&self, token: u64) -> io::Result<Option<u64>> {
        self.step(|state| {
            if token < state.mark {
                return None;
            }
            state.mark = token;
            Some(state.value)
        })
    }

    /// Writes, unless the token is stale. Answers whether it did.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, token: u64, value: u64) -> io::Result<bool> {
        self.step(|state| {
            if token < state.mark {
                state.refused += 1;
                return false;
            }
            *state = Registered { mark: token, value, accepted: state.accepted + 1, ..*state };
            true
        })
    }

    fn step<T>(&self, step: impl FnOnce(&mut Registered) -> T) -> io::Result<T> {
        let guard = File::options().create(true).append(true).open(self.0.with_extension("lock"))?;
        flock(&guard, FlockOperation::LockExclusive)?;
        let mut state = self.load()?;
        let answer = step(&mut state);
        let new = self.0.with_extension("new");
        let Registered { mark, value, accepted, refused } = state;
        std::fs::write(&new, format!("{mark} {value} {accepted} {refused}"))?;
        std::fs::rename(new, &self.0)?;
        Ok(answer)
    }

    fn load(&self) -> io::Result<Registered> {
        let text = match std::fs::read_to_string(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Registered::default()),
            text => text?,
        };
        let numbers: Vec<u64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
        match numbers[..] {
            [mark, value, accepted, refused] => Ok(Registered { mark, value, accepted, refused }),
            _ => Err(io::Error::other(format!("no register: {text:?}"))),
        }
    }
}
