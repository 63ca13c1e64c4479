//! The retry policy, on the paused clock.

use std::time::Duration;

use tenure::{ErrorKind, Retry, connect_retrying};
use tokio::time::Instant;

use crate::support::{another, client, ms, waiters};

/// How long the whole took, in vain.
async fn in_vain(seed: u64, retry: Retry) -> (Duration, String) {
    let (tenure, memory) = client();
    let other = another(&memory, seed);
    let _lease = tenure.mutex("k").acquire().await.unwrap();
    let begin = Instant::now();
    let error = other.mutex("k").acquire_retrying(&retry).await.unwrap_err();
    assert!(error.is_timed_out(), "{error}");
    assert!(!error.may_have_taken_effect());
    assert_eq!(waiters(&memory, "k").await, 0, "a try does not queue");
    (begin.elapsed(), error.to_string())
}

/// Timers of the runtime have milliseconds, and round up.
fn about(span: Duration, expected: Duration) -> bool {
    (expected..expected + ms(10)).contains(&span)
}

#[tokio::test(start_paused = true)]
async fn tries_and_pauses_are_as_said() {
    let even = Retry::new(4, ms(50));
    let (span, message) = in_vain(2, even).await;
    assert!(about(span, ms(150)), "{span:?}");
    assert_eq!(message, "acquire_retrying \"k\" on memory: 4 tries failed; the last: somebody else holds it");
    let (span, message) = in_vain(2, Retry::new(1, ms(50))).await;
    assert!(about(span, ms(0)), "{span:?}");
    assert_eq!(message, "acquire_retrying \"k\" on memory: somebody else holds it");
    // 100 + 300 + 400 + 400
    let (span, _) = in_vain(2, Retry::new(5, ms(100)).factor(3).cap(ms(400))).await;
    assert!(about(span, ms(1_200)), "{span:?}");
}

#[tokio::test(start_paused = true)]
async fn jitter_shortens_the_pauses_by_the_seed() {
    let retry = Retry::new(11, ms(100)).jitter(50);
    let (first, _) = in_vain(7, retry).await;
    let (same, _) = in_vain(7, retry).await;
    let (other, _) = in_vain(8, retry).await;
    assert_eq!(first, same, "one seed is one run");
    assert_ne!(first, other);
    for span in [first, other] {
        assert!(span >= ms(500) && span <= ms(1_010), "{span:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_gets_the_lock_once_that_is_free() {
    let (tenure, memory) = client();
    let other = another(&memory, 2);
    let lease = tenure.mutex("k").acquire().await.unwrap();
    let lock = other.mutex("k");
    let trying = tokio::spawn(async move { lock.acquire_retrying(&Retry::new(5, ms(100))).await });
    tokio::time::sleep(ms(150)).await;
    lease.release().await.unwrap();
    let begin = Instant::now();
    let lease = trying.await.unwrap().unwrap();
    assert!(about(begin.elapsed(), ms(50)), "{:?}", begin.elapsed());
    // Also behind a task of the same client.
    let own = other.mutex("k");
    assert!(own.acquire_retrying(&Retry::new(2, ms(10))).await.unwrap_err().is_timed_out());
    lease.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_does_not_pass_is_not_tried_again() {
    let (tenure, _memory) = client();
    let patient = Retry::new(100, Duration::from_secs(60));
    let begin = Instant::now();
    for key in ["", "a\nb"] {
        let error = tenure.mutex(key).acquire_retrying(&patient).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let error = connect_retrying("nosuch:", &patient).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let lock = tenure.mutex("k");
    tenure.close().await.unwrap();
    let error = lock.acquire_retrying(&patient).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert!(begin.elapsed() < Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn r5_r14_a_policy_out_of_bounds_is_refused_with_the_bounds() {
    let (tenure, _memory) = client();
    let hour = Duration::from_secs(3600);
    for (retry, part) in [
        (Retry::new(0, ms(1)), "from 1 to 100000"),
        (Retry::new(100_001, ms(1)), "from 1 to 100000"),
        (Retry::new(2, Duration::ZERO), "from 1ms to 3600s"),
        (Retry::new(2, hour + ms(1)), "from 1ms to 3600s"),
        (Retry::new(2, ms(1)).factor(0), "from 1 to 16"),
        (Retry::new(2, ms(1)).factor(17), "from 1 to 16"),
        (Retry::new(2, ms(5)).cap(ms(4)), "from the interval, 5ms"),
        (Retry::new(2, ms(5)).cap(Duration::MAX), "to 3600s"),
        (Retry::new(2, ms(5)).jitter(101), "from 0 to 100"),
    ] {
        for error in [
            tenure.mutex("k").acquire_retrying(&retry).await.unwrap_err(),
            connect_retrying("memory:", &retry).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{retry:?}");
            assert!(error.to_string().contains(part), "{retry:?}: {error}");
        }
    }
    for (key, retry) in [("k", Retry::new(1, hour).jitter(100)), ("k2", Retry::default())] {
        tenure.mutex(key).acquire_retrying(&retry).await.unwrap().release().await.unwrap();
    }
}
