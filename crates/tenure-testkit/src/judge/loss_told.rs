//! R2: whoever loses a lease is told before its stated validity ends. So nobody is handed a lease
//! that is over already.

use super::leases::leases;
use super::{Expectations, History, Violation, What};

/// Looks for a lease whose validity ended before it was given back, and without a word.
///
/// # Errors
/// The first violation.
pub fn check(history: &History, _: &Expectations) -> Result<(), Violation> {
    let Some(last) = history.events().last() else { return Ok(()) };
    for lease in leases(history) {
        let known = [lease.told, lease.given_back].into_iter().flatten().min();
        if lease.valid_until < lease.acquired {
            let what =
                format!("lease {} of {:?} was handed out when its validity had ended", lease.id, lease.key);
            return Err(Violation::new(lease.acquired_at, what));
        }
        if known.unwrap_or(last.at) <= lease.valid_until {
            continue;
        }
        let what = format!(
            "lease {} of {:?} was valid until {:?}, and its holder was {}",
            lease.id,
            lease.key,
            lease.valid_until,
            lease.told.map_or("never told".to_owned(), |told| format!("told at {told:?}")),
        );
        return Err(Violation::new(shown_at(history, &lease), what));
    }
    Ok(())
}

/// The event that tells too late, or the first one after the validity ended.
fn shown_at(history: &History, lease: &super::leases::Lease) -> usize {
    let shows = |what: &What| matches!(what, What::ToldLost { lease: told } if *told == lease.id);
    let events = history.events();
    let after = events.iter().position(|event| event.at > lease.valid_until);
    events.iter().position(|event| shows(&event.what)).or(after).unwrap_or(lease.acquired_at)
}

#[cfg(test)]
mod tests {
    use tenure::engine::Mode;

    use super::super::script::{Script, expectations};
    use super::*;

    fn held_until_100() -> Script {
        let mut script = Script::new();
        script.ask(0, 1, Mode::Exclusive, 0).acquired(0, 1, 10, 0, 100);
        script
    }

    #[test]
    fn a_loss_is_told_in_time_or_the_history_is_unsound() {
        let sound =
            |script: &mut Script| check(&script.lease(1, 2, 11, 500, 510).history(), &expectations()).is_ok();
        assert!(sound(held_until_100().told(0, 1, 99)));
        assert!(sound(held_until_100().given_back(0, 1, 100)));
        assert!(sound(held_until_100().stated(0, 1, 50, 600)));
        assert!(!sound(held_until_100().told(0, 1, 101)));
        assert!(!sound(&mut held_until_100()));
        let mut over = Script::new();
        over.ask(0, 1, Mode::Exclusive, 0).acquired(0, 1, 10, 101, 100).told(0, 1, 101);
        assert!(!sound(&mut over));
    }
}
