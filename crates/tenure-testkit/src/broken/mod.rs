//! Deliberately broken engines: the net that does not catch them has a hole.
//!
//! Each makes one mistake that real lock libraries have made. Wrap the engines of all clients of one
//! run with one [`Plot`], since the mistake may need to know what the others did.

mod flaw;
mod holds;
mod releases;
mod tokens;
mod wakes;

use std::sync::Arc;

use tenure::engine::Engine;

use self::flaw::{Flaw, Flawed};

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Broken {
    /// A release deletes whatever holder the key has.
    ReleaseWithoutOwnerCheck,
    /// Validity counts from the reply, not from before the request was sent.
    ValidityAfterReply,
    /// The counter starts again when the key was free.
    CounterRestarts,
    /// Renewing what is gone creates it again.
    RenewalRecreates,
    /// Renewing what is gone is answered *kept*.
    RenewalAlwaysKept,
    /// A claim that timed out is not undone.
    NoUndoAfterTimeout,
    /// After an undo the client claims again as the same owner.
    OwnerReusedAfterUndo,
    /// A claim is sent again, although its owner was released meanwhile.
    ClaimResentAfterRelease,
    /// The key is handed over, and the waiter is not told, not even when it asks.
    WaiterNotWoken,
    /// A departure wakes everybody.
    EveryoneWoken,
    /// A waiter that comes later is served before the head of the queue.
    HeadIsSkipped,
    /// A pushed grant gets its full term before its owner has said that it is alive.
    PushedGrantWithoutShortTerm,
    /// One push wakes two waiters.
    PushCountedTwice,
    /// The number is taken when asking, not when it is granted.
    TokenMintedBeforeTheGrant,
}

/// On which side of what delays and loses requests a mistake is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client makes it: outside of [`Chaos`](crate::chaos::Chaos).
    Client,
    /// The store makes it: inside.
    Store,
}

impl Broken {
    /// All of them.
    pub const ALL: [Broken; 14] = [
        Broken::ReleaseWithoutOwnerCheck,
        Broken::ValidityAfterReply,
        Broken::CounterRestarts,
        Broken::RenewalRecreates,
        Broken::RenewalAlwaysKept,
        Broken::NoUndoAfterTimeout,
        Broken::OwnerReusedAfterUndo,
        Broken::ClaimResentAfterRelease,
        Broken::WaiterNotWoken,
        Broken::EveryoneWoken,
        Broken::HeadIsSkipped,
        Broken::PushedGrantWithoutShortTerm,
        Broken::PushCountedTwice,
        Broken::TokenMintedBeforeTheGrant,
    ];

    /// Its name, as in `TENURE_SIM_BROKEN`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Broken::ReleaseWithoutOwnerCheck => "release_without_owner_check",
            Broken::ValidityAfterReply => "validity_after_reply",
            Broken::CounterRestarts => "counter_restarts",
            Broken::RenewalRecreates => "renewal_recreates",
            Broken::RenewalAlwaysKept => "renewal_always_kept",
            Broken::NoUndoAfterTimeout => "no_undo_after_timeout",
            Broken::OwnerReusedAfterUndo => "owner_reused_after_undo",
            Broken::ClaimResentAfterRelease => "claim_resent_after_release",
            Broken::WaiterNotWoken => "waiter_not_woken",
            Broken::EveryoneWoken => "everyone_woken",
            Broken::HeadIsSkipped => "head_is_skipped",
            Broken::PushedGrantWithoutShortTerm => "pushed_grant_without_short_term",
            Broken::PushCountedTwice => "push_counted_twice",
            Broken::TokenMintedBeforeTheGrant => "token_minted_before_the_grant",
        }
    }

    /// The mistake with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Broken> {
        Broken::ALL.into_iter().find(|broken| broken.name() == name)
    }

    /// Who makes it.
    #[must_use]
    pub fn side(self) -> Side {
        match self {
            Broken::ValidityAfterReply
            | Broken::NoUndoAfterTimeout
            | Broken::OwnerReusedAfterUndo
            | Broken::TokenMintedBeforeTheGrant => Side::Client,
            _ => Side::Store,
        }
    }

    /// The mistake, ready to be made by all clients of one run.
    #[must_use]
    pub fn plot(self) -> Plot {
        let flaw: Arc<dyn Flaw> = match self {
            Broken::ReleaseWithoutOwnerCheck => Arc::new(releases::WithoutOwnerCheck),
            Broken::NoUndoAfterTimeout => Arc::new(releases::NoUndo::default()),
            Broken::OwnerReusedAfterUndo => Arc::new(releases::OwnerReused::default()),
            Broken::ClaimResentAfterRelease => Arc::new(releases::ClaimResent::default()),
            Broken::HeadIsSkipped => Arc::new(releases::HeadSkipped),
            Broken::ValidityAfterReply => Arc::new(holds::AfterReply),
            Broken::RenewalRecreates => Arc::new(holds::Recreates),
            Broken::RenewalAlwaysKept => Arc::new(holds::AlwaysKept),
            Broken::PushedGrantWithoutShortTerm => Arc::new(holds::FullTerm::default()),
            Broken::CounterRestarts => Arc::new(tokens::Restarts::default()),
            Broken::TokenMintedBeforeTheGrant => Arc::new(tokens::MintedBefore::default()),
            Broken::WaiterNotWoken => Arc::new(wakes::NotWoken::default()),
            Broken::EveryoneWoken => Arc::new(wakes::Everyone::default()),
            Broken::PushCountedTwice => Arc::new(wakes::CountedTwice::default()),
        };
        Plot { broken: self, flaw }
    }
}

/// A mistake that the clients of one run make together.
pub struct Plot {
    broken: Broken,
    flaw: Arc<dyn Flaw>,
}

impl Plot {
    /// The engine of one more client, broken.
    #[must_use]
    pub fn wrap(&self, inner: Arc<dyn Engine>) -> Arc<dyn Engine> {
        Arc::new(Flawed { inner, flaw: self.flaw.clone(), name: self.broken.name() })
    }
}

impl std::fmt::Debug for Plot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Plot({})", self.broken.name())
    }
}

/// A value that all clients of a run share.
#[derive(Debug, Default)]
struct Shared<T>(std::sync::Mutex<T>);

impl<T> Shared<T> {
    fn lock(&self) -> std::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
