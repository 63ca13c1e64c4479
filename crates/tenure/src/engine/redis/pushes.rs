//! Mailboxes: who waits here for a message that the key was handed over.
//!
//! A mailbox is registered before the claim that enters the queue is sent, so a message cannot come
//! too early. One that nobody waits for any more is handed back.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::engine::{Grant, Wake, Woken};
use crate::key::{Key, Owner};

/// A hold that nobody here wants: its key and owner.
pub(super) type Unwanted = (Key, Owner);
/// Gives a hold back.
pub(super) type HandBack = Box<dyn Fn(Unwanted) + Send + Sync>;

pub(super) struct Pushes {
    prefix: String,
    boxes: Mutex<HashMap<Owner, Mailbox>>,
    /// How many there are, to be read without the lock.
    count: AtomicUsize,
    next_id: AtomicU64,
    hand_back: HandBack,
}

struct Mailbox {
    /// Tells a mailbox from an earlier one of the same owner.
    id: u64,
    key: Key,
    news: Option<Woken>,
    listener: Listener,
}

enum Listener {
    /// A wake future exists; it was polled if there is a waker.
    Listens(Option<Waker>),
    /// It ended with `Ask`; the owner waits on, without a future for the moment.
    Asked,
}

/// A registered mailbox; dropped, it is closed.
pub(super) struct Registration {
    pushes: Arc<Pushes>,
    owner: Owner,
    id: u64,
    /// Whether to close the mailbox with it: not for a second wake of a place.
    closes: bool,
    ended: bool,
}

impl Pushes {
    pub(super) fn new(prefix: &str, hand_back: HandBack) -> Pushes {
        Pushes {
            prefix: prefix.to_owned(),
            boxes: Mutex::default(),
            count: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            hand_back,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, Mailbox>> {
        self.boxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counted(&self, boxes: &HashMap<Owner, Mailbox>) {
        self.count.store(boxes.len(), Ordering::Release);
    }

    /// How many wait.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Opens a mailbox.
    pub(super) fn register(self: &Arc<Self>, key: &Key, owner: Owner) -> Registration {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mailbox = Mailbox { id, key: key.clone(), news: None, listener: Listener::Listens(None) };
        let mut boxes = self.lock();
        boxes.insert(owner, mailbox);
        self.counted(&boxes);
        Registration { pushes: self.clone(), owner, id, closes: true, ended: false }
    }

    /// Another wake for a place that is waited for, if its first one ended with `Ask`.
    pub(super) fn listen_again(self: &Arc<Self>, owner: Owner) -> Wake {
        let mut boxes = self.lock();
        match boxes.get_mut(&owner) {
            Some(mailbox) if matches!(mailbox.listener, Listener::Asked) => {
                mailbox.listener = Listener::Listens(None);
                let id = mailbox.id;
                drop(boxes);
                Wake::new(Registration { pushes: self.clone(), owner, id, closes: false, ended: false })
            }
            _ => Wake::never(),
        }
    }

    /// Closes the mailbox of an owner whose stay is settled otherwise.
    pub(super) fn forget(&self, owner: Owner) {
        if self.count() > 0 {
            let mut boxes = self.lock();
            let mailbox = boxes.remove(&owner);
            self.counted(&boxes);
            drop(boxes);
            // Without the lock: its waker may be the last of a task that has a mailbox, too.
            drop(mailbox);
        }
    }

    /// Lets all who wait refresh their places: messages may have been lost.
    pub(super) fn ask_all(&self) {
        let wakers: Vec<Waker> = {
            let mut boxes = self.lock();
            boxes.values_mut().filter_map(|mailbox| mailbox.tell(Woken::Ask)).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Takes a message in. `floor` is the connection's: a number not above it is no grant (R6). Its
    /// owner refreshes its place then, finds that it holds the key, and asks for another number. It is
    /// not handed back: the owner may be asking already, and a release that comes after that request
    /// would take a hold that is in use.
    pub(super) fn deliver(&self, payload: &[u8], floor: u64) {
        let Some(message) = Message::read(payload) else { return };
        let (waker, unwanted) = {
            let mut boxes = self.lock();
            match boxes.get_mut(&message.owner) {
                Some(mailbox) if message.grant.raw > floor => {
                    (mailbox.tell(Woken::Granted(message.grant)), false)
                }
                Some(mailbox) => (mailbox.tell(Woken::Ask), false),
                None => (None, true),
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        if unwanted {
            let key = message.lock.strip_prefix(self.prefix.as_str()).and_then(|key| Key::new(key).ok());
            if let Some(key) = key {
                (self.hand_back)((key, message.owner));
            }
        }
    }
}

impl Mailbox {
    fn tell(&mut self, news: Woken) -> Option<Waker> {
        match (&mut self.listener, news) {
            // Whoever asked already will see a grant when its place is refreshed.
            (Listener::Asked, Woken::Ask) => None,
            (Listener::Asked, Woken::Granted(_)) => {
                self.news = Some(news);
                None
            }
            (Listener::Listens(waker), _) => {
                if !matches!(self.news, Some(Woken::Granted(_))) {
                    self.news = Some(news);
                }
                waker.take()
            }
        }
    }
}

impl Registration {
    /// The wake of the place in the queue.
    pub(super) fn into_wake(self) -> Wake {
        Wake::new(self)
    }
}

impl Future for Registration {
    type Output = Woken;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Woken> {
        let this = &mut *self;
        let mut boxes = this.pushes.lock();
        let Some(mailbox) = boxes.get_mut(&this.owner).filter(|mailbox| mailbox.id == this.id) else {
            return Poll::Pending; // settled otherwise
        };
        match mailbox.news.take() {
            None => {
                mailbox.listener = Listener::Listens(Some(cx.waker().clone()));
                Poll::Pending
            }
            Some(Woken::Ask) => {
                mailbox.listener = Listener::Asked;
                this.ended = true;
                Poll::Ready(Woken::Ask)
            }
            Some(granted) => {
                boxes.remove(&this.owner);
                this.pushes.counted(&boxes);
                this.ended = true;
                Poll::Ready(granted)
            }
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let unwanted = {
            let mut boxes = self.pushes.lock();
            let Some(mailbox) = boxes.get_mut(&self.owner).filter(|mailbox| mailbox.id == self.id) else {
                return;
            };
            if !self.closes {
                // A grant stays, unread: the owner may have heard of it by a refresh, and use it.
                mailbox.listener = Listener::Asked;
                return;
            }
            let mailbox = boxes.remove(&self.owner);
            self.pushes.counted(&boxes);
            mailbox.filter(|mailbox| matches!(mailbox.news, Some(Woken::Granted(_))))
        };
        if let Some(mailbox) = unwanted {
            (self.pushes.hand_back)((mailbox.key, self.owner));
        }
    }
}

/// `g1:<owner>:<raw>:<term ms>:<physical name of the lock>`
struct Message<'a> {
    owner: Owner,
    grant: Grant,
    lock: &'a str,
}

impl Message<'_> {
    fn read(payload: &[u8]) -> Option<Message<'_>> {
        let mut fields = std::str::from_utf8(payload).ok()?.strip_prefix("g1:")?.splitn(4, ':');
        let owner = fields.next()?.parse().ok()?;
        let raw = fields.next()?.parse().ok().filter(|raw| *raw < crate::Token::RAW_END)?;
        let term = Duration::from_millis(fields.next()?.parse().ok()?);
        Some(Message { owner, grant: Grant { raw, term, made: false }, lock: fields.next()? })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    type Returned = Arc<Mutex<Vec<Unwanted>>>;

    fn pushes() -> (Arc<Pushes>, Returned) {
        let returned = Returned::default();
        let sink = returned.clone();
        let pushes = Pushes::new("p:", Box::new(move |unwanted| sink.lock().unwrap().push(unwanted)));
        (Arc::new(pushes), returned)
    }

    fn poll(wake: &mut (impl Future<Output = Woken> + Unpin)) -> Option<Woken> {
        match pin!(wake).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(woken) => Some(woken),
            Poll::Pending => None,
        }
    }

    fn message(owner: Owner) -> Vec<u8> {
        format!("g1:{owner}:1000:3000:p:a:b").into_bytes()
    }

    const GRANT: Grant = Grant { raw: 1000, term: Duration::from_secs(3), made: false };

    #[test]
    fn a_message_reaches_its_mailbox_and_is_consumed_once() {
        let (pushes, returned) = pushes();
        let (key, owner) = (Key::new("a:b").unwrap(), Owner::from_id(7));
        let mut wake = pushes.register(&key, owner).into_wake();
        assert_eq!(poll(&mut wake), None);
        pushes.deliver(&message(owner), 999);
        assert_eq!(poll(&mut wake), Some(Woken::Granted(GRANT)));
        assert_eq!(pushes.count(), 0);
        drop(wake);
        assert!(returned.lock().unwrap().is_empty());
    }

    #[test]
    fn a_grant_that_nobody_wants_is_handed_back() {
        let (pushes, returned) = pushes();
        let (key, owner) = (Key::new("a:b").unwrap(), Owner::from_id(7));
        pushes.deliver(&message(owner), 0);
        assert_eq!(returned.lock().unwrap().drain(..).collect::<Vec<_>>(), [(key.clone(), owner)]);
        // A wake that is dropped with its grant undelivered.
        let wake = pushes.register(&key, owner).into_wake();
        pushes.deliver(&message(owner), 0);
        drop(wake);
        assert_eq!(returned.lock().unwrap().drain(..).collect::<Vec<_>>(), [(key.clone(), owner)]);
        // Released meanwhile: the release gives it back.
        let wake = pushes.register(&key, owner).into_wake();
        pushes.deliver(&message(owner), 0);
        pushes.forget(owner);
        drop(wake);
        assert!(returned.lock().unwrap().is_empty());
    }

    #[test]
    fn a_number_not_above_the_floor_is_no_grant() {
        let (pushes, returned) = pushes();
        let (key, owner) = (Key::new("a:b").unwrap(), Owner::from_id(7));
        let mut wake = pushes.register(&key, owner).into_wake();
        pushes.deliver(&message(owner), 1000);
        assert_eq!(poll(&mut wake), Some(Woken::Ask));
        // Its owner may be asking for a larger one already: a release would come after that.
        assert!(returned.lock().unwrap().is_empty());
    }

    #[test]
    fn a_second_wake_that_is_ignored_hands_nothing_back() {
        let (pushes, returned) = pushes();
        let (key, owner) = (Key::new("a:b").unwrap(), Owner::from_id(7));
        let mut first = pushes.register(&key, owner).into_wake();
        pushes.ask_all();
        assert_eq!(poll(&mut first), Some(Woken::Ask));
        // The message comes; then the late answer of an earlier refresh, whose wake nobody uses, while
        // a later refresh has said that the key is held.
        pushes.deliver(&message(owner), 0);
        drop(pushes.listen_again(owner));
        assert!(returned.lock().unwrap().is_empty());
        assert_eq!(poll(&mut pushes.listen_again(owner)), Some(Woken::Granted(GRANT)));
    }

    #[test]
    fn after_a_reconnect_all_ask_and_a_second_wake_goes_on() {
        let (pushes, returned) = pushes();
        let (key, owner) = (Key::new("a:b").unwrap(), Owner::from_id(7));
        let mut first = pushes.register(&key, owner).into_wake();
        assert_eq!(poll(&mut pushes.listen_again(owner)), None);
        pushes.ask_all();
        assert_eq!(poll(&mut first), Some(Woken::Ask));
        drop(first);
        drop(pushes.listen_again(owner)); // an ignored second wake closes nothing
        let mut second = pushes.listen_again(owner);
        pushes.deliver(&message(owner), 0);
        assert_eq!(poll(&mut second), Some(Woken::Granted(GRANT)));
        assert!(returned.lock().unwrap().is_empty());
    }

    #[test]
    fn foreign_messages_are_ignored() {
        let (pushes, returned) = pushes();
        for text in ["", "g1:", "p1", "g1:zz:1:1:p:a", "g2:0000"] {
            pushes.deliver(text.as_bytes(), 0);
        }
        assert!(returned.lock().unwrap().is_empty());
    }
}
