//! Thousands of seeds, and the broken engines.

use tenure_testkit::broken::Broken;
use tenure_testkit::sim::{Report, Simulation};

fn assert_sound(report: &Report) {
    assert!(report.verdict.is_sound(), "{report}");
}

fn seeds(range: std::ops::Range<u64>) {
    for seed in range {
        assert_sound(&Simulation::new(seed).run());
    }
}

#[test]
fn survey() {
    let mut by = std::collections::BTreeMap::<_, Vec<u64>>::new();
    let mut events = 0;
    for seed in 0..600 {
        let report = Simulation::new(seed).run();
        events += report.history.events().len();
        by.entry(report.verdict.violated()).or_default().push(seed);
    }
    println!("{events} events");
    for (k, v) in by {
        println!("{k:?}: {} {:?}", v.len(), &v[..v.len().min(12)]);
    }
}

#[test]
fn hunt() {
    for broken in Broken::ALL {
        let mut by = std::collections::BTreeMap::<_, Vec<u64>>::new();
        for seed in 0..40 {
            let report = Simulation::new(seed).broken(broken).run();
            by.entry(report.verdict.violated()).or_default().push(seed);
        }
        println!("{}:", broken.name());
        for (k, v) in by {
            println!("    {k:?}: {} {:?}", v.len(), &v[..v.len().min(12)]);
        }
    }
}

#[test]
fn replay() {
    let Ok(seed) = std::env::var("TENURE_SIM_SEED") else { return };
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
