//! R8: first come, first served, where the engine promises it, as long as places are refreshed.
//!
//! Judged by stays, since the tasks of one client take turns on one. A stay that was told of its
//! place before another one sent its claim comes before that one: so the other is not told of a
//! grant as long as the first one waits, listens, and has refreshed its place within `3 H`.

use std::collections::HashMap;

use tenure::{Key, Moment, Owner, drift};

use super::{Expectations, History, Violation, What};

#[derive(Clone, Copy, Debug)]
struct Stay {
    asked_at: usize,
    queued_at: Option<usize>,
    /// When the last request was sent that was answered *you wait*.
    refreshed: Moment,
    /// It may be passed: granted, gone, left, or deaf.
    over: bool,
    /// What it is told from here on is no grant but its renewal.
    granted: bool,
}

/// Looks for a stay that was granted before an earlier one.
///
/// # Errors
/// The first violation.
pub fn check(history: &History, expectations: &Expectations) -> Result<(), Violation> {
    if !expectations.fifo {
        return Ok(());
    }
    let mut keys: HashMap<&Key, HashMap<Owner, Stay>> = HashMap::new();
    for (at, event) in history.events().iter().enumerate() {
        let Some(key) = &event.key else { continue };
        let stays = keys.entry(key).or_default();
        match &event.what {
            What::ClaimBegins { owner } => {
                let stay =
                    Stay { asked_at: at, queued_at: None, refreshed: event.at, over: false, granted: false };
                stays.entry(*owner).or_insert(stay);
            }
            What::Queued { owner, sent } => {
                if let Some(stay) = stays.get_mut(owner) {
                    stay.queued_at.get_or_insert(at);
                    stay.refreshed = stay.refreshed.max(*sent);
                }
            }
            What::Granted { owner } => {
                if let Some(what) = passed(stays, *owner, event.at, key, expectations) {
                    return Err(Violation::new(at, what));
                }
                if let Some(stay) = stays.get_mut(owner) {
                    (stay.over, stay.granted) = (true, true);
                }
            }
            What::Gone { owner } | What::GiveBegins { owner } | What::ClaimUnknown { owner, .. } => {
                stays.remove(owner);
            }
            What::StoppedListening { owner } => {
                if let Some(stay) = stays.get_mut(owner) {
                    stay.over = true;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn passed(
    stays: &HashMap<Owner, Stay>,
    granted: Owner,
    now: Moment,
    key: &Key,
    expectations: &Expectations,
) -> Option<String> {
    let newcomer = stays.get(&granted).filter(|stay| !stay.granted)?;
    // The store judges by its own clock, which may run a little faster than ours.
    let lasts = expectations.refresh * 3;
    let lasts = lasts.saturating_sub(drift(lasts));
    let (owner, stay) = stays.iter().find(|(owner, stay)| {
        let before = stay.queued_at.is_some_and(|queued| queued < newcomer.asked_at);
        **owner != granted && before && !stay.over && now < stay.refreshed + lasts
    })?;
    Some(format!(
        "{granted} was granted {key:?} before {owner}, which waited when {granted} asked and had refreshed its \
         place at {:?}",
        stay.refreshed
    ))
}

#[cfg(test)]
mod tests {
    use super::super::script::{Script, expectations};
    use super::*;

    fn two_wait() -> Script {
        let mut script = Script::new();
        script.stay(0, 1, 0, |owner| What::ClaimBegins { owner });
        script.stay(0, 1, 1, |owner| What::Queued { owner, sent: Moment::from_nanos(0) });
        script.stay(1, 2, 2, |owner| What::ClaimBegins { owner });
        script.stay(1, 2, 3, |owner| What::Queued { owner, sent: Moment::from_nanos(2_000_000) });
        script
    }

    fn sound(script: &Script) -> bool {
        check(&script.history(), &expectations()).is_ok()
    }

    #[test]
    fn the_first_is_served_first() {
        let mut good = two_wait();
        good.stay(0, 1, 10, |owner| What::Granted { owner }).stay(1, 2, 20, |owner| What::Granted { owner });
        assert!(sound(&good));
        let mut bad = two_wait();
        bad.stay(1, 2, 10, |owner| What::Granted { owner });
        assert!(!sound(&bad));
        let not_promised = Expectations { fifo: false, ..expectations() };
        assert!(check(&bad.history(), &not_promised).is_ok());
    }

    #[test]
    fn a_holder_that_asks_for_its_number_again_passes_nobody() {
        let mut script = Script::new();
        script
            .stay(1, 2, 0, |owner| What::ClaimBegins { owner })
            .stay(1, 2, 1, |owner| What::Granted { owner });
        script.stay(0, 1, 2, |owner| What::ClaimBegins { owner });
        script.stay(0, 1, 3, |owner| What::Queued { owner, sent: Moment::from_nanos(2_000_000) });
        script
            .stay(1, 2, 4, |owner| What::ClaimBegins { owner })
            .stay(1, 2, 5, |owner| What::Granted { owner });
        assert!(sound(&script));
    }

    #[test]
    fn who_left_or_did_not_refresh_may_be_passed() {
        let mut left = two_wait();
        left.stay(0, 1, 5, |owner| What::GiveBegins { owner })
            .stay(1, 2, 10, |owner| What::Granted { owner });
        assert!(sound(&left));
        let mut late = two_wait();
        late.stay(1, 2, 300, |owner| What::Granted { owner });
        assert!(sound(&late), "places last 3 H, which is 300 ms here");
        let mut fresh = two_wait();
        fresh.stay(0, 1, 200, |owner| What::Queued { owner, sent: Moment::from_nanos(190_000_000) });
        fresh.stay(1, 2, 300, |owner| What::Granted { owner });
        assert!(!sound(&fresh));
    }
}
