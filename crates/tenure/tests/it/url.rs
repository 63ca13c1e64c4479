//! What `connect` reads from a URL.

use std::time::Duration;

use tenure::{DEFAULT_TERM, ErrorKind, Tenure, connect};

use crate::support::ms;

/// The term that a lock of this client gets.
async fn granted(tenure: &Tenure, ttl: Option<Duration>) -> Duration {
    let lock = tenure.mutex("k");
    let lock = ttl.into_iter().fold(lock, |lock, ttl| lock.ttl(ttl));
    let lease = lock.acquire().await.unwrap();
    let key = tenure::Key::new("k").unwrap();
    let view = tenure.engine().look(&key).await.unwrap();
    lease.release().await.unwrap();
    view.holders[0].remaining
}

fn about(term: Duration, expected: Duration) -> bool {
    term <= expected && term + ms(2_000) > expected
}

#[tokio::test]
async fn r5_ttl_is_the_default_term_and_a_lock_may_have_another() {
    let plain = connect("memory:").await.unwrap();
    assert_eq!(plain.default_term(), DEFAULT_TERM);
    assert!(about(granted(&plain, None).await, DEFAULT_TERM));

    for url in ["memory:?ttl=8s", "memory:?ttl=3s&ttl=8s", "memory:?ttl=8s#note"] {
        let tenure = connect(url).await.unwrap();
        assert_eq!(tenure.default_term(), ms(8_000), "{url}");
        assert!(about(granted(&tenure, None).await, ms(8_000)), "{url}");
        assert!(about(granted(&tenure, Some(ms(60_000))).await, ms(60_000)), "{url}");
    }
}

#[tokio::test]
async fn a_bad_ttl_is_refused_at_connect() {
    for (url, part) in [
        ("memory:?ttl=99ms", "100ms to 30 days"),
        ("memory:?ttl=31d", "100ms to 30 days"),
        ("memory:?ttl=0s", "out of bounds"),
        ("memory:?ttl=5", "not a duration"),
        ("memory:?ttl=", "not a duration"),
        ("memory:?ttl=-5s", "not a duration"),
    ] {
        let error = connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(error.to_string().starts_with("connect"), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test]
async fn what_is_no_url_of_an_engine_is_refused_and_never_shown() {
    for (url, part) in [
        ("memory", "no URL"),
        ("", "no URL"),
        ("memory:x", "memory:?ttl"),
        ("memory:?max_ttl=5s", "memory:?ttl"),
        ("nosuch://:secret@host", "\"nosuch:\""),
        ("localhost:6379", "\"localhost:\""),
    ] {
        let error = connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
        assert!(error.to_string().contains(part), "{error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
    }
}
