//! The matrix of engines and cases has no holes.

use std::collections::BTreeSet;
use std::path::Path;

use tenure_testkit::suite::{self, Contender};

use crate::contenders::CONTENDERS;

fn names_in(folder: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn every_engine_meets_every_case() {
    let trials = suite::trials(CONTENDERS, true);
    let names: BTreeSet<&str> = trials.iter().map(libtest_mimic::Trial::name).collect();
    assert_eq!(names.len(), trials.len(), "two tests have one name");
    for contender in CONTENDERS {
        for case in suite::all() {
            let name = format!("{}::{}::{}", contender.name, case.group, case.name);
            assert!(names.contains(name.as_str()), "{name} is missing");
        }
    }
    assert_eq!(names.len(), CONTENDERS.len() * suite::all().len());
}

#[test]
fn every_engine_of_the_library_is_a_contender() {
    for engine in names_in("../tenure/src/engine") {
        let meets = CONTENDERS.iter().any(|contender| contender.name.split('-').next() == Some(&engine));
        assert!(meets, "the engine {engine} runs no suite");
    }
}

#[test]
fn every_file_of_the_suite_is_registered() {
    let groups: BTreeSet<String> = suite::all().iter().map(|case| case.group.to_owned()).collect();
    let mut files = names_in("src/suite");
    for no_group in ["mod", "tools"] {
        assert!(files.remove(no_group));
    }
    assert_eq!(groups, files);
}

#[test]
fn every_rule_has_a_case() {
    let names: Vec<&str> = suite::all().iter().map(|case| case.name).collect();
    // Not here: R11, which is the cases `*_or_refused`; R13 and R17, which no engine decides.
    for rule in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 16] {
        let prefix = format!("r{rule}_");
        assert!(names.iter().any(|name| name.starts_with(&prefix)), "R{rule} has no case");
    }
    assert!(names.iter().any(|name| name.ends_with("_or_refused")), "R11 has no case");
}

#[test]
fn what_a_contender_lacks_is_stated_once_and_for_a_reason() {
    for contender in CONTENDERS {
        for (index, (need, why)) in contender.lacks.iter().enumerate() {
            assert!(!why.is_empty());
            assert!(contender.lacks[..index].iter().all(|(earlier, _)| earlier != need));
        }
    }
}

#[test]
fn what_cannot_run_is_ignored_with_its_reason_or_required() {
    let absent = Contender { missing: || Some("no server is installed".to_owned()), ..CONTENDERS[0] };
    for require_all in [false, true] {
        for trial in suite::trials(&[absent], require_all) {
            assert_eq!(trial.has_ignored_flag(), !require_all, "{}", trial.name());
            assert!(trial.kind().contains("no server is installed"), "{}", trial.kind());
        }
    }
}

#[test]
fn the_documented_rights_are_those_that_are_tried() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/engines/redis.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rights) = page.split_once("ACL SETUSER tenure on >password ").unwrap();
    let (rights, _) = rights.split_once("```").unwrap();
    let documented: BTreeSet<&str> = rights.split_whitespace().filter(|word| word.starts_with('+')).collect();
    let tried: BTreeSet<&str> = suite::access::DOCUMENTED.split_whitespace().collect();
    assert_eq!(documented, tried);
}
