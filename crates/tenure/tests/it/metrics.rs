//! The names and labels of the metrics are a format.

use std::collections::BTreeSet;

use metrics_util::debugging::DebuggingRecorder;

use crate::support::{client, ms};

#[test]
fn golden_names_and_labels() {
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
    let names: BTreeSet<String> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, ..)| {
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
