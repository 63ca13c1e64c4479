//! R1: no two leases that exclude each other are inside their stated validity at one moment.
//!
//! A lease counts from the moment it was granted to the task until it is given back, told lost, or
//! its last stated validity ends. All clients of the history share one clock.

use std::collections::HashMap;

use tenure::Key;
use tenure::engine::Mode;

use super::leases::{Lease, leases};
use super::{Expectations, History, Violation};

/// Looks for a lease that was granted while another one excluded it.
///
/// # Errors
/// The first violation.
pub fn check(history: &History, _: &Expectations) -> Result<(), Violation> {
    let mut active: HashMap<Key, Vec<Lease>> = HashMap::new();
    for lease in leases(history) {
        let inside = active.entry(lease.key.clone()).or_default();
        inside.retain(|other| other.end() > lease.acquired);
        if lease.end() > lease.acquired {
            if let Some(what) = excludes(inside, &lease) {
                return Err(Violation::new(lease.acquired_at, what));
            }
            inside.push(lease);
        }
    }
    Ok(())
}

fn excludes(inside: &[Lease], lease: &Lease) -> Option<String> {
    let other = inside.iter().find(|other| match (lease.mode, other.mode) {
        (Mode::Exclusive, _) | (_, Mode::Exclusive) => true,
        (Mode::Shared, Mode::Shared) => false,
        (Mode::Permits { of, .. }, Mode::Permits { .. }) => taken(inside) + taken_by(lease) > u64::from(of),
        _ => true,
    })?;
    Some(format!(
        "client {} was granted lease {} of {:?} (token {}) at {:?}, while client {} was inside the stated \
         validity of lease {} (token {}, until {:?})",
        lease.client,
        lease.id,
        lease.key,
        lease.token,
        lease.acquired,
        other.client,
        other.id,
        other.token,
        other.end()
    ))
}

fn taken(inside: &[Lease]) -> u64 {
    inside.iter().map(taken_by).sum()
}

fn taken_by(lease: &Lease) -> u64 {
    match lease.mode {
        Mode::Permits { take, .. } => u64::from(take),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::{Script, expectations};
    use super::*;

    #[test]
    fn one_after_another_is_sound_and_both_at_once_is_not() {
        let mut good = Script::new();
        good.lease(0, 1, 10, 0, 50).lease(1, 2, 11, 50, 90);
        assert!(check(&good.history(), &expectations()).is_ok());
        let mut bad = Script::new();
        bad.ask(0, 1, Mode::Exclusive, 0).acquired(0, 1, 10, 0, 100).lease(1, 2, 11, 99, 120);
        let violation = check(&bad.history(), &expectations()).unwrap_err();
        assert!(violation.what.contains("client 0 was inside"), "{violation:?}");
    }

    #[test]
    fn a_told_loss_or_the_end_of_validity_ends_a_lease_and_a_renewal_prolongs_it() {
        let mut told = Script::new();
        told.ask(0, 1, Mode::Exclusive, 0).acquired(0, 1, 10, 0, 100).told(0, 1, 40).lease(1, 2, 11, 41, 50);
        assert!(check(&told.history(), &expectations()).is_ok());
        let mut expired = Script::new();
        expired.ask(0, 1, Mode::Exclusive, 0).acquired(0, 1, 10, 0, 100).lease(1, 2, 11, 100, 110);
        assert!(check(&expired.history(), &expectations()).is_ok());
        let mut renewed = Script::new();
        renewed.ask(0, 1, Mode::Exclusive, 0).acquired(0, 1, 10, 0, 100).stated(0, 1, 60, 160);
        renewed.lease(1, 2, 11, 110, 120);
        assert!(check(&renewed.history(), &expectations()).is_err());
    }

    #[test]
    fn readers_and_permits_fit_together_up_to_the_total() {
        let pair = |mode: Mode, other: Mode| {
            let mut script = Script::new();
            script.ask(0, 1, mode, 0).acquired(0, 1, 10, 0, 100);
            script.ask(1, 2, other, 1).acquired(1, 2, 11, 1, 100);
            check(&script.history(), &expectations()).is_ok()
        };
        let take = |take| Mode::Permits { take, of: 5 };
        assert!(pair(Mode::Shared, Mode::Shared) && pair(take(3), take(2)));
        assert!(!pair(Mode::Shared, Mode::Exclusive) && !pair(take(3), take(3)));
    }
}
