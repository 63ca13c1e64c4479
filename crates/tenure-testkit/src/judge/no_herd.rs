//! R7: a departure wakes at most those it admits.
//!
//! Counted per key: wakes after which the waiter still waited, against departures.

use std::collections::HashMap;

use tenure::Key;

use super::{Expectations, History, Violation, What};

/// Looks for more wakes in vain than the departures of a key allow.
///
/// # Errors
/// The first violation.
pub fn check(history: &History, expectations: &Expectations) -> Result<(), Violation> {
    let mut keys: HashMap<&Key, Count> = HashMap::new();
    for (at, event) in history.events().iter().enumerate() {
        let Some(key) = &event.key else { continue };
        let count = keys.entry(key).or_default();
        match &event.what {
            What::GiveBegins { .. } => count.departures += 1,
            What::Woken { owner } => count.woken.push(*owner),
            What::Granted { owner } | What::Gone { owner } => count.woken.retain(|woken| woken != owner),
            What::Queued { owner, .. } if count.woken.contains(owner) => {
                count.woken.retain(|woken| woken != owner);
                count.in_vain += 1;
                if count.in_vain > count.departures * expectations.woken_in_vain {
                    let what = format!(
                        "{} waiters of {key:?} were woken and found it busy, after {} departures",
                        count.in_vain, count.departures
                    );
                    return Err(Violation::new(at, what));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

#[derive(Default)]
struct Count {
    departures: usize,
    in_vain: usize,
    woken: Vec<tenure::Owner>,
}

#[cfg(test)]
mod tests {
    use tenure::Moment;

    use super::super::script::{Script, expectations};
    use super::*;

    #[test]
    fn a_wake_that_finds_the_key_busy_counts_against_departures() {
        let still_waits = |owner| What::Queued { owner, sent: Moment::from_nanos(0) };
        let mut script = Script::new();
        script.stay(0, 9, 0, |owner| What::GiveBegins { owner });
        script.stay(1, 1, 1, |owner| What::Woken { owner }).stay(1, 1, 2, still_waits);
        let allowed = |woken_in_vain| Expectations { woken_in_vain, ..expectations() };
        assert!(check(&script.history(), &allowed(0)).is_err());
        assert!(check(&script.history(), &allowed(1)).is_ok());
        script.stay(1, 2, 3, |owner| What::Woken { owner }).stay(1, 2, 4, still_waits);
        assert!(check(&script.history(), &allowed(1)).is_err());
    }

    #[test]
    fn a_wake_that_is_granted_is_not_in_vain() {
        let mut script = Script::new();
        script.stay(1, 1, 1, |owner| What::Woken { owner }).stay(1, 1, 2, |owner| What::Granted { owner });
        script.stay(1, 1, 3, |owner| What::Queued { owner, sent: Moment::from_nanos(0) });
        assert!(check(&script.history(), &expectations()).is_ok());
    }
}
