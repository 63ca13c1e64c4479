//! Who of a line may enter: a pure function, so that it can be tested to the bottom.
//!
//! One rule makes a mutex, a writer-fair read-write lock and a strict semaphore: somebody is admitted
//! when the weights of all who hold, of all who wait ahead, and its own, fit together.

use crate::engine::Mode;
use crate::error::{Error, ErrorKind, Result};

/// All of a key whose total has no number: what an exclusive holder takes.
const WHOLE: u64 = u64::MAX / 2;

/// How much a mode takes, of how much.
pub(in crate::engine) const fn weight(mode: Mode) -> (u64, u64) {
    match mode {
        Mode::Exclusive => (WHOLE, WHOLE),
        Mode::Shared => (1, WHOLE),
        Mode::Permits { take, of } => (take as u64, of as u64),
    }
}

/// Whether `mine` fits beside all of `ahead`.
pub(in crate::engine) fn fits(ahead: impl IntoIterator<Item = Mode>, mine: Mode) -> bool {
    let (amount, total) = weight(mine);
    let taken = ahead.into_iter().fold(0u64, |sum, mode| sum.saturating_add(weight(mode).0));
    taken.saturating_add(amount) <= total
}

/// How many from the head of `waiting` are admitted beside the `held` ones.
///
/// Weights only add up along the line, so who does not fit keeps everybody behind it out too: the
/// admitted are always a first part of the line.
pub(in crate::engine) fn admitted(
    held: impl IntoIterator<Item = Mode>,
    waiting: impl IntoIterator<Item = Mode>,
) -> usize {
    let mut taken = held.into_iter().fold(0u64, |sum, mode| sum.saturating_add(weight(mode).0));
    let enters = |mode: &Mode| {
        let (amount, total) = weight(*mode);
        taken = taken.saturating_add(amount);
        taken <= total
    };
    waiting.into_iter().take_while(enters).count()
}

/// Refuses a mode that makes no sense, or that cannot be compared with the one a key is used in.
pub(in crate::engine) fn check(mode: Mode, in_use: Option<Mode>) -> Result<()> {
    let refuse = |what: String| Err(Error::new(ErrorKind::Invalid, what));
    match (mode, in_use) {
        (Mode::Permits { take, of }, _) if take == 0 || take > of => {
            refuse(format!("{take} permits of {of} cannot be taken: take from 1 to all of them"))
        }
        (Mode::Permits { of, .. }, Some(Mode::Permits { of: stored, .. })) if of != stored => refuse(
            format!("the key has a total of {stored} permits, not {of}; all who use a key say one total"),
        ),
        (Mode::Permits { .. }, Some(Mode::Exclusive | Mode::Shared)) => {
            refuse("the key is used as a lock, not by permits".to_owned())
        }
        (Mode::Exclusive | Mode::Shared, Some(Mode::Permits { of, .. })) => {
            refuse(format!("the key is used by permits of {of}, not as a lock"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lock_mode() -> impl Strategy<Value = Mode> {
        prop_oneof![1 => Just(Mode::Exclusive), 3 => Just(Mode::Shared)]
    }

    fn modes() -> impl Strategy<Value = Vec<Mode>> {
        let locks = proptest::collection::vec(lock_mode(), 0..12);
        let permits = (1u32..8).prop_flat_map(|of| {
            proptest::collection::vec((1..=of).prop_map(move |take| Mode::Permits { take, of }), 0..12)
        });
        prop_oneof![locks, permits]
    }

    /// A state a line can be in: everybody came one after another and nobody left since.
    fn arrived(all: &[Mode]) -> (Vec<Mode>, Vec<Mode>) {
        let inside = admitted([], all.iter().copied());
        (all[..inside].to_vec(), all[inside..].to_vec())
    }

    fn together(held: &[Mode]) -> bool {
        let sum: u64 = held.iter().map(|mode| weight(*mode).0).sum();
        held.first().is_none_or(|mode| sum <= weight(*mode).1)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nobody_admissible_sleeps_and_none_is_admitted_who_does_not_fit(
            all in modes(),
            leaving in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let (mut held, mut waiting) = arrived(&all);
            for leaver in leaving {
                if held.is_empty() { break; }
                held.remove(leaver.index(held.len()));
                let inside = admitted(held.iter().copied(), waiting.iter().copied());
                held.extend(waiting.drain(..inside));
                prop_assert!(together(&held));
                if let Some(head) = waiting.first() {
                    prop_assert!(!fits(held.iter().copied(), *head), "the head could enter, and sleeps");
                }
            }
            prop_assert!(!held.is_empty() || waiting.is_empty(), "a free key has nobody waiting");
        }

        #[test]
        fn a_release_wakes_at_most_those_it_admits(all in modes()) {
            let (held, waiting) = arrived(&all);
            for leaver in 0..held.len() {
                let mut rest = held.clone();
                let freed = weight(rest.remove(leaver)).0;
                let woken = admitted(rest, waiting.iter().copied());
                let taken: u64 = waiting[..woken].iter().map(|mode| weight(*mode).0).sum();
                let spare = held.first().map_or(0, |mode| {
                    weight(*mode).1 - held.iter().map(|mode| weight(*mode).0).sum::<u64>()
                });
                prop_assert!(taken <= freed + spare);
            }
        }

        #[test]
        fn nobody_passes(all in modes(), newcomer in lock_mode()) {
            let (held, waiting) = arrived(&all);
            let lock = all.iter().all(|mode| matches!(mode, Mode::Exclusive | Mode::Shared));
            if lock && !waiting.is_empty() {
                prop_assert!(!fits(held.iter().chain(&waiting).copied(), newcomer));
            }
        }
    }

    #[test]
    fn one_key_has_one_total_and_the_message_names_it() {
        let stored = Some(Mode::Permits { take: 1, of: 5 });
        let error = check(Mode::Permits { take: 1, of: 4 }, stored).unwrap_err();
        assert!(error.to_string().contains("total of 5 permits, not 4"), "{error}");
        assert!(check(Mode::Permits { take: 0, of: 4 }, None).is_err());
        assert!(check(Mode::Permits { take: 5, of: 4 }, None).is_err());
        assert!(check(Mode::Permits { take: 5, of: 5 }, stored).is_ok());
        assert!(check(Mode::Exclusive, stored).is_err());
        assert!(check(Mode::Permits { take: 1, of: 1 }, Some(Mode::Shared)).is_err());
        assert!(check(Mode::Shared, Some(Mode::Exclusive)).is_ok());
    }
}
