//! R2 and R3: once a release was answered, the store does not show that stay as a holder again.
//!
//! So a renewal in flight does not undo a release, nobody claims as an owner that was given back,
//! and an undo is carried out. Only a claim that is unknown may come after its undo: what counts
//! then is a release that was sent when the claim's time limit was over.

use std::collections::HashMap;

use tenure::{Moment, Owner};

use super::{Expectations, History, Violation, What};

/// Looks for a stay that the store shows after it was given back.
///
/// # Errors
/// The first violation.
pub fn check(history: &History, expectations: &Expectations) -> Result<(), Violation> {
    // Until when a claim may still reach the store, and when the release that counts was answered.
    let mut may_come_until: HashMap<Owner, Moment> = HashMap::new();
    let mut given: HashMap<Owner, Moment> = HashMap::new();
    let mut outstanding: HashMap<Owner, usize> = HashMap::new();
    for (at, event) in history.events().iter().enumerate() {
        match &event.what {
            What::ClaimBegins { owner } => *outstanding.entry(*owner).or_default() += 1,
            What::ClaimUnknown { owner, sent } => {
                let until = *sent + expectations.request_limit;
                let known = may_come_until.entry(*owner).or_insert(until);
                *known = (*known).max(until);
                answered(&mut outstanding, owner);
            }
            What::Granted { owner } | What::Queued { owner, .. } | What::Gone { owner } => {
                answered(&mut outstanding, owner);
            }
            What::Given { owner, sent, .. } => {
                let overtaken = may_come_until.get(owner).is_some_and(|until| sent < until)
                    || outstanding.get(owner).is_some_and(|count| *count > 0);
                if !overtaken {
                    given.entry(*owner).or_insert(event.at);
                }
            }
            What::Seen { holders } => {
                if let Some((owner, since)) = holders.iter().find_map(|owner| given.get_key_value(owner)) {
                    let what =
                        format!("the store shows {owner} as holder, whose release was answered at {since:?}");
                    return Err(Violation::new(at, what));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn answered(outstanding: &mut HashMap<Owner, usize>, owner: &Owner) {
    if let Some(count) = outstanding.get_mut(owner) {
        *count = count.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use tenure::engine::Released;

    use super::super::script::{Script, expectations, ms, owner};
    use super::*;

    fn given(sent: u64) -> impl Fn(Owner) -> What {
        move |owner| What::Given { owner, sent: ms(sent), answer: Released::Released }
    }

    fn seen(script: &mut Script, at: u64, id: u128) -> bool {
        script.event(9, at, What::Seen { holders: vec![owner(id)] });
        check(&script.history(), &expectations()).is_ok()
    }

    #[test]
    fn a_stay_that_was_given_back_is_not_seen_again() {
        let mut script = Script::new();
        script
            .stay(0, 1, 0, |owner| What::ClaimBegins { owner })
            .stay(0, 1, 1, |owner| What::Granted { owner });
        assert!(seen(&mut script, 5, 1));
        script.stay(0, 1, 10, |owner| What::GiveBegins { owner });
        assert!(seen(&mut script, 11, 1), "the release is on its way");
        script.stay(0, 1, 12, given(10));
        assert!(seen(&mut script, 13, 2));
        assert!(!seen(&mut script, 14, 1));
    }

    #[test]
    fn an_unknown_claim_may_come_after_its_undo_but_not_after_its_time_limit() {
        // The time limit of a request is 1 s here.
        let mut script = Script::new();
        script.stay(0, 1, 0, |owner| What::ClaimBegins { owner });
        script.stay(0, 1, 50, |owner| What::ClaimUnknown { owner, sent: ms(0) }).stay(0, 1, 60, given(51));
        assert!(seen(&mut script, 900, 1));
        script.stay(0, 1, 1110, given(1100));
        assert!(!seen(&mut script, 1200, 1));
    }
}
