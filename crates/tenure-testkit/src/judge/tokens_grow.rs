//! R6: tokens grow strictly with every grant of a key, whatever happened in between.
//!
//! Of an exclusive lease the order of being told is the order of being granted: a lease that is
//! told while valid still holds the key at the store. Holders who share a key may learn of their
//! grants in another order, so there only one that was asked for afterwards must have a larger token.

use std::collections::HashMap;

use tenure::Key;
use tenure::engine::Mode;

use super::leases::{Lease, leases};
use super::{Expectations, History, Violation};

/// Looks for a token that is not larger than an earlier one.
///
/// # Errors
/// The first violation.
pub fn check(history: &History, _: &Expectations) -> Result<(), Violation> {
    let mut earlier: HashMap<Key, Vec<Lease>> = HashMap::new();
    for lease in leases(history) {
        let before = earlier.entry(lease.key.clone()).or_default();
        // Token 0 is no token: a degraded lease has it, and every guard refuses it.
        let bad = before.iter().find(|other| {
            let alone = lease.mode == Mode::Exclusive || other.mode == Mode::Exclusive;
            let after = alone || other.acquired_at < lease.asked_at;
            after && lease.token != 0 && lease.token <= other.token
        });
        if let Some(other) = bad {
            let what = format!(
                "lease {} of {:?} has token {}, lease {} before it had {}",
                lease.id, lease.key, lease.token, other.id, other.token
            );
            return Err(Violation::new(lease.acquired_at, what));
        }
        // For exclusive holders the largest so far is all that counts; it keeps this linear.
        if lease.mode == Mode::Exclusive {
            before.retain(|other| other.mode != Mode::Exclusive);
        }
        before.push(lease);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::script::{Script, expectations};
    use super::*;

    #[test]
    fn tokens_that_grow_are_sound_and_others_are_not() {
        let mut good = Script::new();
        good.lease(0, 1, 10, 0, 50).lease(1, 2, 11, 60, 90);
        assert!(check(&good.history(), &expectations()).is_ok());
        for token in [10, 9] {
            let mut bad = Script::new();
            bad.lease(0, 1, 10, 0, 50).lease(1, 2, token, 60, 90);
            let violation = check(&bad.history(), &expectations()).unwrap_err();
            assert!(violation.what.contains("before it had 10"), "{violation:?}");
        }
    }

    #[test]
    fn readers_may_be_told_in_another_order_unless_one_asked_afterwards() {
        let mut together = Script::new();
        together.ask(0, 1, Mode::Shared, 0).ask(1, 2, Mode::Shared, 0);
        together.acquired(1, 2, 12, 5, 100).acquired(0, 1, 11, 6, 100);
        assert!(check(&together.history(), &expectations()).is_ok());
        let mut after = Script::new();
        after.ask(0, 1, Mode::Shared, 0).acquired(0, 1, 12, 5, 100);
        after.ask(1, 2, Mode::Shared, 6).acquired(1, 2, 11, 7, 100);
        assert!(check(&after.history(), &expectations()).is_err());
    }
}
