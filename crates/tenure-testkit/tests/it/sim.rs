//! The real core over the memory engine, through thousands of seeds; and the broken engines, each of
//! which must be caught.

use std::ops::Range;

use tenure_testkit::broken::Broken;
use tenure_testkit::sim::{Report, Simulation};

/// How many seeds each of the eight tests runs; `TENURE_SIM_SEEDS` says another number.
const SEEDS_EACH: u64 = 250;
/// How far to look for a seed that catches a mistake, should the fixed one not do so any more because
/// the core makes its requests in another order.
const SEARCH: Range<u64> = 0..80;

fn assert_sound(report: &Report) {
    assert!(report.verdict.is_sound(), "{report}");
}

fn run_part(part: u64) {
    let each = match std::env::var("TENURE_SIM_SEEDS") {
        Ok(number) => number.parse().expect("TENURE_SIM_SEEDS is a number"),
        Err(_) => SEEDS_EACH,
    };
    for seed in part * each..(part + 1) * each {
        assert_sound(&Simulation::new(seed).run());
    }
}

/// In parts, so that they run beside each other.
macro_rules! parts {
    ($($name:ident = $part:literal),*) => { $(
        #[test]
        fn $name() { run_part($part); }
    )* };
}

parts!(
    sound_0 = 0,
    sound_1 = 1,
    sound_2 = 2,
    sound_3 = 3,
    sound_4 = 4,
    sound_5 = 5,
    sound_6 = 6,
    sound_7 = 7
);

/// The mistake is found, as a violation of one of these invariants, and without the mistake the same
/// seed is sound.
fn is_caught(broken: Broken, fixed: u64, invariants: &[&str]) {
    let caught = |seed: &u64| {
        let report = Simulation::new(*seed).broken(broken).run();
        let violated = report.verdict.violated();
        violated.filter(|violated| {
            assert!(invariants.contains(violated), "caught, but as something else\n{report}");
            true
        })
    };
    let seed = std::iter::once(fixed).chain(SEARCH).find(|seed| caught(seed).is_some());
    let seed = seed.unwrap_or_else(|| panic!("no seed in {SEARCH:?} catches {}", broken.name()));
    if seed != fixed {
        println!("seed {fixed} does not catch {} any more, {seed} does: write that here", broken.name());
    }
    assert_sound(&Simulation::new(seed).run());
}

macro_rules! broken {
    ($($name:ident = $broken:ident, $seed:literal, $invariants:expr;)*) => {
        mod broken {
            use super::*;

            $(
                #[test]
                fn $name() { is_caught(Broken::$broken, $seed, &$invariants); }
            )*

            #[test]
            fn none_is_forgotten() {
                let tested = [$(Broken::$broken),*];
                for broken in Broken::ALL {
                    assert!(tested.contains(&broken), "{} has no test here", broken.name());
                    assert_eq!(Broken::by_name(broken.name()), Some(broken));
                }
            }
        }
    };
}

broken! {
    release_without_owner_check = ReleaseWithoutOwnerCheck, 0, ["exclusion", "tokens_grow", "fifo"];
    validity_after_reply = ValidityAfterReply, 33, ["exclusion", "tokens_grow"];
    counter_restarts = CounterRestarts, 0, ["tokens_grow"];
    renewal_recreates = RenewalRecreates, 1, ["gone_is_gone", "exclusion", "tokens_grow"];
    renewal_always_kept = RenewalAlwaysKept, 11, ["exclusion", "tokens_grow"];
    no_undo_after_timeout = NoUndoAfterTimeout, 30, ["gone_is_gone"];
    owner_reused_after_undo = OwnerReusedAfterUndo, 1, ["gone_is_gone"];
    claim_resent_after_release = ClaimResentAfterRelease, 0, ["gone_is_gone"];
    waiter_not_woken = WaiterNotWoken, 0, ["served"];
    everyone_woken = EveryoneWoken, 0, ["no_herd"];
    head_is_skipped = HeadIsSkipped, 3, ["fifo"];
    pushed_grant_without_short_term = PushedGrantWithoutShortTerm, 0, ["served"];
    push_counted_twice = PushCountedTwice, 0, ["exclusion", "tokens_grow", "fifo"];
    token_minted_before_the_grant = TokenMintedBeforeTheGrant, 5, ["tokens_grow"];
}

#[test]
fn one_seed_is_one_run_event_by_event() {
    for seed in 0..12 {
        let once = Simulation::new(seed).run();
        let again = Simulation::new(seed).run();
        let (once, again) = (once.history.events(), again.history.events());
        for (number, (one, other)) in once.iter().zip(again).enumerate() {
            assert_eq!(one.to_string(), other.to_string(), "seed {seed}, event {number}");
        }
        assert_eq!(once.len(), again.len(), "seed {seed}");
        assert!(once.len() > 100, "seed {seed} did next to nothing: {} events", once.len());
    }
}

#[test]
fn a_failure_names_its_seed_and_the_command_that_replays_it() {
    let report = Simulation::new(0).broken(Broken::CounterRestarts).run();
    let text = report.to_string();
    assert!(text.contains("tokens_grow does not hold"), "{text}");
    let replay =
        "TENURE_SIM_SEED=0 TENURE_SIM_BROKEN=counter_restarts cargo test -p tenure-testkit --test it";
    assert!(text.contains(replay), "{text}");
}

/// Makes the run again that a failure named: `TENURE_SIM_SEED`, `TENURE_SIM_BROKEN`. Prints all of it.
#[test]
fn replay() {
    let Ok(seed) = std::env::var("TENURE_SIM_SEED") else {
        assert_sound(&Simulation::new(0).run());
        return;
    };
    let mut simulation = Simulation::new(seed.parse().expect("TENURE_SIM_SEED is a number"));
    if let Ok(name) = std::env::var("TENURE_SIM_BROKEN") {
        simulation = simulation.broken(Broken::by_name(&name).expect("TENURE_SIM_BROKEN names a mistake"));
    }
    let report = simulation.run();
    for event in report.history.events() {
        println!("{event}");
    }
    assert_sound(&report);
}
