//! What a waiter of the memory engine is told by.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::store::Store;
use crate::engine::{Grant, Wake, Woken};
use crate::key::{Key, Owner};

/// Where the hand-over of a place arrives. Dropped with a grant in it, it hands that back.
pub(super) struct Mailbox {
    receiver: Option<oneshot::Receiver<Grant>>,
    store: Arc<Store>,
    key: Key,
    owner: Owner,
}

impl Mailbox {
    pub(super) fn new(
        receiver: oneshot::Receiver<Grant>,
        store: Arc<Store>,
        key: Key,
        owner: Owner,
    ) -> Mailbox {
        Mailbox { receiver: Some(receiver), store, key, owner }
    }
}

impl Future for Mailbox {
    type Output = Woken;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Woken> {
        let Some(receiver) = self.receiver.as_mut() else {
            return Poll::Pending;
        };
        match Pin::new(receiver).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(answer) => {
                self.receiver = None;
                // The place went without a hand-over: as on a server, nobody tells; a refresh will.
                answer.map_or(Poll::Pending, |grant| Poll::Ready(Woken::Granted(grant)))
            }
        }
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        let Some(mut receiver) = self.receiver.take() else { return };
        // Closed first: from here on a hand-over finds nobody and skips the place.
        receiver.close();
        if let Ok(grant) = receiver.try_recv() {
            self.store.hand_back(&self.key, self.owner, grant.raw);
        }
    }
}

/// A wake that ends with the next change.
pub(super) fn change(receiver: oneshot::Receiver<()>) -> Wake {
    Wake::new(async move {
        match receiver.await {
            Ok(()) => Woken::Ask,
            Err(_) => std::future::pending().await,
        }
    })
}
