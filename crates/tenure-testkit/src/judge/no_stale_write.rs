//! The other half of fencing: a register that compares tokens never accepts an older write after a
//! newer one, and never refuses a holder whose lease is valid.

use std::collections::HashMap;

use tenure::Key;

use super::leases::leases;
use super::{Expectations, History, LeaseId, Violation, What};

/// Looks for a stale write that got through, and for a valid holder that was refused.
///
/// # Errors
/// The first violation.
pub fn check(history: &History, _: &Expectations) -> Result<(), Violation> {
    let leases: HashMap<LeaseId, _> = leases(history).into_iter().map(|lease| (lease.id, lease)).collect();
    let mut newest: HashMap<&Key, u64> = HashMap::new();
    for (at, event) in history.events().iter().enumerate() {
        let (What::Wrote { lease, token, accepted }, Some(key)) = (&event.what, &event.key) else { continue };
        let mark = newest.entry(key).or_default();
        if *accepted && token < mark {
            let what = format!("{key:?} accepted a write with token {token} after one with {mark}");
            return Err(Violation::new(at, what));
        }
        let valid = leases.get(lease).is_some_and(|lease| event.at < lease.end());
        if !accepted && valid {
            let what =
                format!("{key:?} refused token {token} of lease {lease}, which was valid; mark {mark}");
            return Err(Violation::new(at, what));
        }
        if *accepted {
            *mark = *token;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tenure::engine::Mode;

    use super::super::script::{Script, expectations};
    use super::*;

    #[test]
    fn an_older_write_after_a_newer_one_must_be_refused() {
        for (accepted, sound) in [(false, true), (true, false)] {
            let mut script = Script::new();
            script.lease(0, 1, 10, 0, 50).lease(1, 2, 11, 60, 100);
            script.wrote(1, 2, 11, true, 100).wrote(0, 1, 10, accepted, 101);
            assert_eq!(check(&script.history(), &expectations()).is_ok(), sound);
        }
    }

    #[test]
    fn a_valid_holder_must_not_be_refused() {
        let mut script = Script::new();
        script.ask(0, 1, Mode::Exclusive, 0).acquired(0, 1, 10, 0, 100).wrote(0, 1, 10, false, 50);
        let violation = check(&script.history(), &expectations()).unwrap_err();
        assert!(violation.what.contains("which was valid"), "{violation:?}");
    }
}
