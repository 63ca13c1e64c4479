//! The leases of a history, with the time in which each one counts.

use std::collections::HashMap;

use tenure::engine::Mode;
use tenure::{Key, Moment, Owner};

use super::history::{Attempt, History, LeaseId, What};

/// One task's lease, as the history tells of it.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Its id.
    pub id: LeaseId,
    /// Whose it is.
    pub client: u32,
    /// The key.
    pub key: Key,
    /// How it is held.
    pub mode: Mode,
    /// The stay it belongs to.
    pub owner: Owner,
    /// The fencing token.
    pub token: u64,
    /// The index of the event that asked for it.
    pub asked_at: usize,
    /// The index of the event that granted it.
    pub acquired_at: usize,
    /// When it was granted.
    pub acquired: Moment,
    /// The last validity that was stated.
    pub valid_until: Moment,
    /// When the holder was told that it is lost.
    pub told: Option<Moment>,
    /// When the holder began to give it back.
    pub given_back: Option<Moment>,
}

impl Lease {
    /// When it stops to count: given back, told lost, or at the end of its stated validity.
    #[must_use]
    pub fn end(&self) -> Moment {
        [self.told, self.given_back].into_iter().flatten().fold(self.valid_until, Moment::min)
    }
}

/// All leases of a history, in the order in which they were granted.
#[must_use]
pub fn leases(history: &History) -> Vec<Lease> {
    let mut asked: HashMap<Attempt, (usize, Mode)> = HashMap::new();
    let mut index: HashMap<LeaseId, usize> = HashMap::new();
    let mut leases: Vec<Lease> = Vec::new();
    for (at, event) in history.events().iter().enumerate() {
        let Some(key) = &event.key else { continue };
        let mut change = |lease: &LeaseId, change: &dyn Fn(&mut Lease)| {
            if let Some(lease) = index.get(lease).and_then(|at| leases.get_mut(*at)) {
                change(lease);
            }
        };
        match &event.what {
            What::AcquireBegins { attempt, mode } => {
                asked.insert(*attempt, (at, *mode));
            }
            What::Stated { lease, valid_until } => {
                change(lease, &|lease| lease.valid_until = lease.valid_until.max(*valid_until));
            }
            What::ToldLost { lease } => change(lease, &|lease| {
                lease.told.get_or_insert(event.at);
            }),
            What::ReleaseBegins { lease } => change(lease, &|lease| {
                lease.given_back.get_or_insert(event.at);
            }),
            What::Acquired { attempt, lease, owner, token, valid_until } => {
                let (asked_at, mode) = asked.get(attempt).copied().unwrap_or((at, Mode::Exclusive));
                index.insert(*lease, leases.len());
                leases.push(Lease {
                    id: *lease,
                    client: event.client,
                    key: key.clone(),
                    mode,
                    owner: *owner,
                    token: *token,
                    asked_at,
                    acquired_at: at,
                    acquired: event.at,
                    valid_until: *valid_until,
                    told: None,
                    given_back: None,
                });
            }
            _ => {}
        }
    }
    leases
}
