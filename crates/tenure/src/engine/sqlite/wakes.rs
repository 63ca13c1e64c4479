//! How a waiter is told: hand-overs come through the client's pipe, and the end of a holder's process is
//! looked for.
//!
//! The kernel wakes nobody when a lock of `flock(2)` is let go, except one who blocks for it. That would be a
//! thread for each holder, which cannot be called off when the waiter leaves. So while somebody waits, this
//! client's one thread tries the locks of those it waits for every 20 ms: three system calls each, nothing
//! at the database, and nothing at all while nobody waits.

use std::collections::{BTreeSet, HashMap};
use std::future::Future;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::sync::oneshot;

use super::clients::ClientId;
use super::flight::Me;
use super::queue::Queue;
use crate::engine::{Grant, Wake, Woken};
use crate::key::{Key, Owner};

/// How often the holders' processes are looked for, while somebody waits for them.
const LOOK: Duration = Duration::from_millis(20);
/// The longest line in a pipe, which is written whole or not at all.
const LINE: usize = 4096;

/// The waiters of a client.
pub(super) struct Wakes {
    me: Arc<Me>,
    queue: Arc<Queue>,
    waiters: Mutex<HashMap<Owner, Waiter>>,
    /// This client's own pipe, once somebody waits.
    pipe: Mutex<Option<Arc<OwnedFd>>>,
    closed: AtomicBool,
}

#[derive(Default)]
struct Waiter {
    /// More than one after the same request came twice.
    mailboxes: Vec<oneshot::Sender<Grant>>,
    /// Clients whose end lets somebody in.
    before: Vec<ClientId>,
}

impl Wakes {
    pub(super) fn new(me: Arc<Me>, queue: Arc<Queue>) -> Wakes {
        let (waiters, pipe, closed) = (Mutex::default(), Mutex::default(), AtomicBool::new(false));
        Wakes { me, queue, waiters, pipe, closed }
    }

    #[cfg(test)]
    pub(super) fn me(&self) -> &Me {
        &self.me
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, Waiter>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a waiter, before it asks: whatever is told after that is heard.
    pub(super) fn register(self: &Arc<Wakes>, key: &Key, owner: Owner) -> std::io::Result<Mailbox> {
        self.listen()?;
        let (sender, receiver) = oneshot::channel();
        self.lock().entry(owner).or_default().mailboxes.push(sender);
        Ok(Mailbox { receiver: Some(receiver), wakes: self.clone(), key: key.clone(), owner })
    }

    /// Makes the pipe and starts its thread, the first time.
    fn listen(self: &Arc<Wakes>) -> std::io::Result<()> {
        let mut pipe = self.pipe.lock().unwrap_or_else(PoisonError::into_inner);
        if pipe.is_none() && !self.closed.load(Ordering::Acquire) {
            let made = Arc::new(self.me.folder.make_wakes(self.me.id)?);
            let (wakes, reads) = (self.clone(), made.clone());
            std::thread::Builder::new().name("tenure-wakes".to_owned()).spawn(move || wakes.run(&reads))?;
            *pipe = Some(made);
        }
        Ok(())
    }

    /// Has the thread look at what has changed.
    fn nudge(&self) {
        if let Some(pipe) = &*self.pipe.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = rustix::io::write(pipe, b"\n");
        }
    }

    /// Whose end lets a waiter in, by the last answer.
    pub(super) fn watch(&self, owner: Owner, before: Vec<ClientId>) {
        let mut waiters = self.lock();
        let slept = waiters.values().all(|waiter| waiter.before.is_empty());
        let Some(waiter) = waiters.get_mut(&owner) else { return };
        let looks = slept && !before.is_empty();
        waiter.before = before;
        drop(waiters);
        if looks {
            self.nudge();
        }
    }

    /// It does not wait any more.
    pub(super) fn forget(&self, owner: Owner) {
        // Dropped after the lock is let go: the end of a mailbox wakes whoever waits for it.
        let forgotten = self.lock().remove(&owner);
        drop(forgotten);
    }

    /// Tells a waiter of this client. If nobody listens, what was handed over is given back.
    pub(super) fn deliver(&self, key: &Key, owner: Owner, grant: Grant) {
        let waiter = self.lock().remove(&owner);
        let mailboxes = waiter.map(|waiter| waiter.mailboxes).unwrap_or_default();
        if !mailboxes.into_iter().any(|mailbox| mailbox.send(grant).is_ok()) {
            self.hand_back(key, owner, grant.raw);
        }
    }

    fn hand_back(&self, key: &Key, owner: Owner, raw: u64) {
        let key = key.clone();
        // If it cannot be asked, the client ends, and all it has with it.
        let _ = self.queue.ask(false, move |flight| flight.hand_back(&key, owner, raw));
    }

    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.nudge();
    }

    fn watched(&self) -> BTreeSet<ClientId> {
        self.lock().values().flat_map(|waiter| waiter.before.iter().copied()).collect()
    }

    fn run(&self, pipe: &OwnedFd) {
        let mut said = Vec::new();
        while !self.closed.load(Ordering::Acquire) {
            let watched = self.watched();
            let patience = Timespec { tv_sec: 0, tv_nsec: i64::from(LOOK.subsec_nanos()) };
            let mut fds = [PollFd::new(pipe, PollFlags::IN)];
            // A signal ends the waiting early, which harms nothing.
            let _ = poll(&mut fds, (!watched.is_empty()).then_some(&patience));
            self.read(pipe, &mut said);
            for client in watched.into_iter().filter(|client| self.me.folder.is_dead(*client)) {
                for waiter in self.lock().values_mut() {
                    waiter.before.retain(|watched| *watched != client);
                }
                // The one whom it lets in is told; so is this client, if that is one of its waiters.
                let _ = self.queue.ask(false, move |flight| flight.bury_if_dead(client));
            }
        }
    }

    /// Reads what was told, and keeps the beginning of a line that is not whole yet.
    fn read(&self, pipe: &OwnedFd, said: &mut Vec<u8>) {
        let mut buffer = [0; LINE];
        while let Ok(count @ 1..) = rustix::io::read(pipe, &mut buffer) {
            said.extend_from_slice(&buffer[..count]);
            while let Some(end) = said.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = said.drain(..=end).collect();
                if let Some((key, owner, grant)) = heard(&line[..end]) {
                    self.deliver(&key, owner, grant);
                }
            }
            if said.len() > LINE {
                said.clear();
            }
        }
    }
}

/// Tells a waiter of another client. If its pipe is full, it finds out when it refreshes its place.
pub(super) fn tell(pipe: impl AsFd, key: &Key, owner: Owner, grant: Grant) {
    let line = format!("g1 {owner} {} {} {key}\n", grant.raw, grant.term.as_nanos());
    if let Err(error) = rustix::io::write(pipe, line.as_bytes()) {
        tracing::debug!(%key, %error, "a hand-over could not be told");
    }
}

/// A line in a pipe: `g1 <owner> <number> <term in ns> <key>`.
fn heard(line: &[u8]) -> Option<(Key, Owner, Grant)> {
    let mut words = std::str::from_utf8(line).ok()?.strip_prefix("g1 ")?.splitn(4, ' ');
    let owner = words.next()?.parse().ok()?;
    let raw = words.next()?.parse().ok()?;
    let term = Duration::from_nanos(words.next()?.parse().ok()?);
    let key = Key::new(words.next()?).ok()?;
    Some((key, owner, Grant { raw, term, made: false }))
}

/// Where the hand-over of a place arrives. Dropped with a grant in it, it gives that back.
pub(super) struct Mailbox {
    receiver: Option<oneshot::Receiver<Grant>>,
    wakes: Arc<Wakes>,
    key: Key,
    owner: Owner,
}

impl Mailbox {
    pub(super) fn into_wake(self) -> Wake {
        Wake::new(self)
    }
}

impl Future for Mailbox {
    type Output = Woken;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Woken> {
        let Some(receiver) = self.receiver.as_mut() else { return Poll::Pending };
        match Pin::new(receiver).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(told) => {
                self.receiver = None;
                // Forgotten without a hand-over: a refresh of the place will tell.
                told.map_or(Poll::Pending, |grant| Poll::Ready(Woken::Granted(grant)))
            }
        }
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        let Some(mut receiver) = self.receiver.take() else { return };
        // Closed first: from here on a hand-over finds nobody.
        receiver.close();
        if let Ok(grant) = receiver.try_recv() {
            return self.wakes.hand_back(&self.key, self.owner, grant.raw);
        }
        // Dropped after the lock is let go, as in `forget`.
        let (mut closed, mut forgotten) = (Vec::new(), None);
        let mut waiters = self.wakes.lock();
        if let Some(waiter) = waiters.get_mut(&self.owner) {
            closed.extend(waiter.mailboxes.extract_if(.., |mailbox| mailbox.is_closed()));
            if waiter.mailboxes.is_empty() {
                forgotten = waiters.remove(&self.owner);
            }
        }
        drop(waiters);
        drop((closed, forgotten));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_line_of_a_pipe() {
        let key = Key::new("a key/with ä").unwrap();
        let grant = Grant { raw: 1_764_500_000_000_000, term: Duration::from_secs(3), made: false };
        let (read, write) = std::io::pipe().unwrap();
        tell(&write, &key, Owner::from_id(0xab), grant);
        let mut line = [0; 256];
        let count = rustix::io::read(&read, &mut line).unwrap();
        let line = &line[..count];
        assert_eq!(
            line,
            "g1 000000000000000000000000000000ab 1764500000000000 3000000000 a key/with ä\n".as_bytes()
        );
        assert_eq!(heard(&line[..count - 1]), Some((key, Owner::from_id(0xab), grant)));
        for bad in [
            "",
            "\n",
            "g1",
            "g1 ab 1 2 k",
            "g2 000000000000000000000000000000ab 1 2 k",
            "g1 000000000000000000000000000000ab 1 2 ",
        ] {
            assert_eq!(heard(bad.as_bytes()), None, "{bad}");
        }
    }
}
