//! What an operator asks: who holds a key, which keys are held, and to take a key from its holder.

use std::collections::BTreeSet;

use crate::client::Tenure;
use crate::engine::{Holder, Released, Stake, View};
use crate::error::{Error, ErrorKind, Result};
use crate::key::Key;

/// Keys that are held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The keys, sorted.
    pub keys: Vec<Key>,
    /// Whether these are all; if not, the limit was reached.
    pub complete: bool,
}

impl Tenure {
    /// Who holds a key, who waits for it, and what is kept beside it. Changes nothing.
    ///
    /// # Errors
    /// `Invalid` for a key that is not allowed, `NotALock` if it holds something else, `Unavailable` if
    /// the store does not answer, `Closed` after [`Tenure::close`].
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn look(&self, key: impl AsRef<str>) -> Result<View> {
        let named = |error: Error| self.named("look", error);
        let key = Key::new(key).map_err(named)?;
        self.check_open().map_err(named)?;
        self.engine().look(&key).await.map_err(|error| named(error).key(&key))
    }

    /// The keys that are held and start with a text, at most `limit` of them, in as many requests as the
    /// store needs pages. For people: on Redis it walks over all names of the database.
    ///
    /// A key that is taken or given back meanwhile may be there or not.
    ///
    /// # Errors
    /// `Unavailable` if the store does not answer, `Closed` after [`Tenure::close`].
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn held(&self, starts_with: &str, limit: usize) -> Result<Listing> {
        let named = |error: Error| self.named("held", error);
        self.check_open().map_err(named)?;
        let (mut keys, mut after) = (BTreeSet::new(), None);
        loop {
            let page = self.engine().list(starts_with, after).await.map_err(named)?;
            keys.extend(page.keys);
            after = page.next;
            if after.is_none() || keys.len() > limit {
                break;
            }
        }
        let complete = after.is_none() && keys.len() <= limit;
        Ok(Listing { keys: keys.into_iter().take(limit).collect(), complete })
    }

    /// Takes a key from holders that a [`View`] showed, and answers with those who had to go. Who waits
    /// gets it as after an ordinary release, with a greater token; whoever has entered since then
    /// stays.
    ///
    /// A holder that is alive learns of it with its next renewal, within a third of its term, and may work
    /// on until then: only a resource that checks the [`Token`](crate::Token) refuses what it still writes.
    ///
    /// # Errors
    /// `NotALock` if one of the holders is no client of Tenure's; then none is touched. `Unavailable` if
    /// the store did not answer; then some may be gone: look again.
    ///
    /// # Cancel safety
    /// A request that was begun goes on; holders that come after it stay.
    pub async fn force_release(&self, key: impl AsRef<str>, holders: &[Holder]) -> Result<Vec<Holder>> {
        let named = |error: Error| self.named("force_release", error);
        let key = Key::new(key).map_err(named)?;
        let named = |error: Error| named(error).key(&key);
        self.check_open().map_err(named)?;
        let owners: Option<Vec<_>> = holders.iter().map(|holder| Some((holder, holder.owner?))).collect();
        let owners = owners.ok_or_else(|| named(foreign()))?;
        let mut gone = Vec::new();
        for (holder, owner) in owners {
            let (mode, raw) = (holder.mode, holder.raw);
            let stake = Stake { key: key.clone(), owner, mode, term: self.default_term(), raw };
            match self.engine().release(&stake).await.map_err(named)? {
                Released::Released => gone.push(holder.clone()),
                Released::WasLost => {}
            }
        }
        Ok(gone)
    }

    fn check_open(&self) -> Result<()> {
        match self.core().is_closed() {
            true => Err(Error::new(ErrorKind::Closed, "the client was closed")),
            false => Ok(()),
        }
    }

    fn named(&self, operation: &'static str, error: Error) -> Error {
        error.called(operation).engine(self.promises().engine)
    }
}

fn foreign() -> Error {
    let what = "a holder is no client of Tenure's, so only it can give the key back; nothing was released";
    Error::new(ErrorKind::NotALock, what)
        .advice("make sure that it is gone, then delete the key in the store by hand, under the name in View::physical")
}
