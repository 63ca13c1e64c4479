//! Whether a client lives, and how it is told: two files for each beside the database.
//!
//! A client holds `flock(2)` on the file named by its id from before anything refers to it. The kernel lets
//! go of that when the last descriptor of it is closed, however the process ends, and across pid
//! namespaces. A process id would say less: it is used again, and means nothing in another namespace.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, flock, mknodat, open};
use rustix::io::Errno;

use crate::background::Background;

/// How many entries a sweep looks at.
const SWEEP: usize = 4096;
/// How often a new client tries another id: each time somebody looked at the file before it was locked.
const TRIES: usize = 64;

/// The random id of a client. Never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ClientId(pub(super) u128);

impl ClientId {
    pub(super) fn name(self) -> String {
        format!("{:032x}", self.0)
    }
}

/// The folder of a database's clients: `PATH.clients`.
#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

/// How a client can be told something.
pub(super) enum Reach {
    /// Through this.
    Told(OwnedFd),
    /// Its process has ended.
    Gone,
    /// Not at all; it finds out when it refreshes its place.
    Untold,
}

impl Folder {
    pub(super) fn of(database: &Path) -> Folder {
        let mut name = database.as_os_str().to_owned();
        name.push(".clients");
        Folder(PathBuf::from(name))
    }

    /// Makes sure that it is there.
    pub(super) fn make(&self) -> io::Result<()> {
        match std::fs::create_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && self.0.is_dir() => Ok(()),
            made => made,
        }
    }

    /// The folder itself, on which clients queue for their turn to write.
    pub(super) fn turnstile(&self) -> io::Result<File> {
        File::open(&self.0)
    }

    fn file(&self, id: ClientId) -> PathBuf {
        self.0.join(id.name())
    }

    fn wakes(&self, id: ClientId) -> PathBuf {
        self.0.join(format!("{}.wake", id.name()))
    }

    /// A new client: its id, and the file whose lock says that it lives.
    pub(super) fn register(&self, background: &Background) -> io::Result<(ClientId, OwnedFd)> {
        for _ in 0..TRIES {
            let id = ClientId(background.owner().id());
            let path = self.file(id);
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
            let file = open(&path, flags, Mode::from_raw_mode(0o666))?;
            // Whoever sweeps may look at it just now, and take it for one that somebody left.
            let mine = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
            let there = rustix::fs::stat(&path).is_ok_and(|there| {
                rustix::fs::fstat(&file)
                    .is_ok_and(|this| (this.st_dev, this.st_ino) == (there.st_dev, there.st_ino))
            });
            if mine && there {
                return Ok((id, file));
            }
            let _ = std::fs::remove_file(&path);
        }
        Err(io::Error::other("the client's file was taken away again and again"))
    }

    /// Whether it is certain that a client is dead: nobody holds the lock of its file. Where the file
    /// cannot be opened nothing is certain, and the term decides.
    pub(super) fn is_dead(&self, id: ClientId) -> bool {
        match open(self.file(id), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => flock(&file, FlockOperation::NonBlockingLockShared).is_ok(),
            Err(_) => false,
        }
    }

    /// Makes the pipe through which a client is told. Held open for both, it never ends.
    pub(super) fn make_wakes(&self, id: ClientId) -> io::Result<OwnedFd> {
        let path = self.wakes(id);
        match mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o666), 0) {
            // The id is ours alone: it is from a time when something after this failed.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(open(&path, OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// How to tell a client something.
    pub(super) fn reach(&self, id: ClientId) -> Reach {
        match open(self.wakes(id), OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) {
            Ok(pipe) => Reach::Told(pipe),
            Err(Errno::NXIO) => Reach::Gone,
            Err(_) => Reach::Untold,
        }
    }

    /// Removes the files of a client that is dead and of which the database knows nothing any more.
    pub(super) fn remove(&self, id: ClientId) {
        let Ok(file) = open(self.file(id), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else { return };
        // Locked until it is gone: one that is just being made looks dead, and is not taken away once it lives.
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            self.forget(id);
        }
    }

    /// Removes the files of a client of which the database knows nothing, and never will: also while a copy
    /// of its liveness is open somewhere.
    pub(super) fn forget(&self, id: ClientId) {
        // The lock's file last: as long as it is there, somebody can still find out that it is dead.
        let _ = std::fs::remove_file(self.wakes(id));
        let _ = std::fs::remove_file(self.file(id));
    }

    /// Clients that died and left their files. Pipes without a client are removed on the way.
    pub(super) fn dead(&self) -> Vec<ClientId> {
        let Ok(entries) = std::fs::read_dir(&self.0) else { return Vec::new() };
        let mut dead = Vec::new();
        for entry in entries.take(SWEEP).flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let id = |text: &str| (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok()).flatten();
            if let Some(owner) = name.strip_suffix(".wake").and_then(id) {
                // Its client locked its own file before it made this, and no id is used twice.
                if matches!(self.file(ClientId(owner)).try_exists(), Ok(false)) {
                    let _ = std::fs::remove_file(entry.path());
                }
            } else if let Some(id) = id(name).map(ClientId)
                && self.is_dead(id)
            {
                dead.push(id);
            }
        }
        dead
    }
}

/// A turn to write, of one client among all processes: first come, first served, which the database's own
/// lock is not. It decides nothing; should it fail, that lock still does.
pub(super) struct Turn<'a>(Option<&'a File>);

impl<'a> Turn<'a> {
    pub(super) fn wait(turnstile: &'a File) -> Turn<'a> {
        loop {
            match flock(turnstile, FlockOperation::LockExclusive) {
                Ok(()) => return Turn(Some(turnstile)),
                Err(Errno::INTR) => {}
                Err(_) => return Turn(None),
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(turnstile) = self.0 {
            let _ = flock(turnstile, FlockOperation::Unlock);
        }
    }
}
