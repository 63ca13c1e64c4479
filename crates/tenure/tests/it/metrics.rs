//! The names and labels of the metrics are a format.

use std::collections::{BTreeMap, BTreeSet};

use metrics_util::debugging::DebuggingRecorder;

use crate::support::{client, ms};

/// What a client of the memory engine registers: the type of each, with its labels.
fn registered() -> Vec<metrics_util::CompositeKey> {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (tenure, _memory) = client();
            let lock = tenure.mutex("orders/42").class("orders").ttl(ms(300));
            let lease = lock.acquire().await.unwrap();
            assert!(lock.try_acquire().await.unwrap().is_none());
            lock.acquire_within(ms(10)).await.unwrap_err();
            tokio::time::sleep(ms(250)).await;
            lease.release().await.unwrap();
        });
    });
    snapshotter.snapshot().into_vec().into_iter().map(|(key, ..)| key).collect()
}

#[test]
fn golden_names_and_labels() {
    let names: BTreeSet<String> = registered()
        .iter()
        .map(|key| {
            let key = key.key();
            let labels: Vec<_> =
                key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
            format!("{}{{{}}}", key.name(), labels.join(","))
        })
        .filter(|name| !name.contains("class=default"))
        .collect();
    let expected = [
        "tenure_acquire_wait_seconds{engine=memory,class=orders}",
        "tenure_acquires_total{engine=memory,class=orders,outcome=busy}",
        "tenure_acquires_total{engine=memory,class=orders,outcome=error}",
        "tenure_acquires_total{engine=memory,class=orders,outcome=granted}",
        "tenure_acquires_total{engine=memory,class=orders,outcome=timed_out}",
        "tenure_hold_seconds{engine=memory,class=orders}",
        "tenure_holders{engine=memory,class=orders}",
        "tenure_losses_total{engine=memory,class=orders,cause=closed}",
        "tenure_losses_total{engine=memory,class=orders,cause=expired}",
        "tenure_losses_total{engine=memory,class=orders,cause=taken}",
        "tenure_renewals_total{engine=memory,outcome=kept}",
        "tenure_renewals_total{engine=memory,outcome=lost}",
        "tenure_renewals_total{engine=memory,outcome=unknown}",
        "tenure_waiters{engine=memory,class=orders}",
    ];
    assert_eq!(names, expected.iter().map(ToString::to_string).collect());
}

/// A row of the page: the type, and the words in its cell of labels.
type Row = (String, BTreeSet<String>);

fn ticked(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn page() -> BTreeMap<String, Row> {
    let page = include_str!("../../../../docs/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `tenure_")?.strip_suffix(" |"));
    let rows = rows.map(|row| row.split(" | ").collect::<Vec<_>>()).filter(|cells| cells.len() == 5);
    rows.map(|cells| {
        let name = format!("tenure_{}", cells[0].trim_end_matches('`'));
        (name, (cells[1].to_owned(), ticked(cells[3])))
    })
    .collect()
}

/// The page lists every metric, with its type, its labels, and the values of those that have few.
#[test]
fn golden_page() {
    let mut expected: BTreeMap<String, Row> = BTreeMap::new();
    for key in registered() {
        let kind = format!("{:?}", key.kind()).to_lowercase();
        let row = expected.entry(key.key().name().to_owned()).or_insert((kind, BTreeSet::new()));
        for label in key.key().labels() {
            row.1.insert(label.key().to_owned());
            if ["outcome", "cause"].contains(&label.key()) {
                row.1.insert(label.value().to_owned());
            }
        }
    }
    // Those of an engine with a server, from where they are made.
    for line in include_str!("../../src/engine/redis/lane.rs").lines() {
        let Some((kind, rest)) = line.split_once("metrics::").and_then(|(_, made)| made.split_once("!(\""))
        else {
            continue;
        };
        let name = rest.split('"').next().unwrap().to_owned();
        expected.insert(name, (kind.to_owned(), BTreeSet::from(["engine".to_owned()])));
    }
    assert_eq!(expected.len(), 10, "one that is not registered by either");
    assert_eq!(page(), expected);
}
