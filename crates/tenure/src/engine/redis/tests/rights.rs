//! What is checked at connect.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

async fn refused(url: &str) -> Error {
    let background = Background::threads().unwrap();
    open(url, &background).await.map(|_| ()).unwrap_err()
}

#[tokio::test]
async fn a_wrong_password_is_told_at_once_and_never_shown() {
    let server = Server::start_with(&["--requirepass", "right"]);
    let begin = std::time::Instant::now();
    for wrong in
        [server.url(), server.url().replace("//", "//:wrong@"), server.url().replace("//", "//u:wrong@")]
    {
        let error = refused(&wrong).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        assert!(!format!("{error:?}").contains("wrong@"), "{error:?}");
    }
    assert!(begin.elapsed() < Duration::from_secs(1));
    let background = Background::threads().unwrap();
    open(&server.url().replace("//", "//:right@"), &background).await.unwrap();
}

#[tokio::test]
async fn a_missing_right_is_named() {
    let server = Server::start();
    let mut raw = server.raw();
    let url = server.url().replace("//", "//bob:pw@");
    for (taken, named) in [
        ("-info", "+info"),
        ("-subscribe", "+subscribe"),
        ("-eval", "+eval"),
        ("-evalsha", "+evalsha"),
        ("-publish", "+publish"),
        ("-incr", "+incr"),
        ("-time", "+time"),
        ("-zadd", "+zadd"),
        ("-pexpire", "+pexpire"),
        ("resetchannels", "&tenure:*"),
    ] {
        raw.text(&["ACL", "SETUSER", "bob", "reset", "on", ">pw", "~*", "&*", "+@all", taken]);
        let error = refused(&url).await;
        assert_eq!(error.kind(), ErrorKind::Denied, "{taken}: {error}");
        let message = error.to_string();
        assert!(message.starts_with("connect on redis: ") && message.contains(named), "{taken}: {message}");
    }
    raw.text(&["ACL", "SETUSER", "bob", "reset", "on", ">pw", "~other:*", "&*", "+@all"]);
    let message = refused(&url).await.to_string();
    assert!(message.contains("~tenure:*"), "{message}");
}

/// The very line that users copy.
fn stated() -> impl Iterator<Item = &'static str> {
    let page = include_str!("../../../../../../docs/engines/redis.md");
    let (_, line) = page.split_once("ACL SETUSER tenure on >password ").unwrap();
    let (line, _) = line.split_once("```").unwrap();
    line.split_whitespace()
}

#[tokio::test]
async fn the_stated_rights_suffice() {
    let server = Server::start();
    let mut acl = vec!["ACL", "SETUSER", "bob", "reset", "on", ">pw"];
    acl.extend(stated());
    server.raw().text(&acl);
    let background = Background::threads().unwrap();
    let redis = open(&server.url().replace("//", "//bob:pw@"), &background).await.unwrap();
    let key = key("orders/1");
    granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    let mut second = busy(redis.claim(&claim(&key, 2, true)).await.unwrap());
    redis.note(&claim(&key, 1, true).stake(), &Record(b"x".to_vec())).await.unwrap();
    redis.release(&claim(&key, 1, true).stake()).await.unwrap();
    let woken = tokio::time::timeout(Duration::from_secs(2), &mut second.wake).await.unwrap();
    assert!(matches!(woken, Woken::Granted(_)));
    assert!(matches!(redis.renew(&[claim(&key, 2, true).stake()]).await[..], [Renewed::Kept(_)]));
    granted(redis.claim(&claim(&key, 2, true)).await.unwrap());
    redis.look(&key).await.unwrap();
    assert_eq!(redis.list("orders/", None).await.unwrap().keys.len(), 1);
    let elsewhere = redis.claim(&claim(&super::key("secret/1"), 3, true)).await.unwrap_err();
    assert_eq!(elsewhere.kind(), ErrorKind::Denied);
    assert!(!elsewhere.may_have_taken_effect(), "{elsewhere}");
}

/// Every right of the page is needed, and named where it is missing: at connect, or where it is used first.
#[tokio::test]
async fn each_stated_right_is_named_when_it_is_missing() {
    let server = Server::start();
    let mut raw = server.raw();
    let rights: Vec<_> = stated().collect();
    assert!(rights.len() > 30, "{rights:?}");
    // Which locks a user may have is not for us to know. Everybody may say HELLO; to a PING a refusal is an answer too.
    let silent = ["~orders/*", "+hello", "+ping"];
    for taken in rights.iter().filter(|right| !silent.contains(right)) {
        let mut acl = vec!["ACL", "SETUSER", "bob", "reset", "on", ">pw"];
        acl.extend(rights.iter().filter(|right| *right != taken));
        assert_eq!(raw.text(&acl), "OK");
        let background = Background::threads().unwrap();
        let database = if *taken == "+select" { "/1" } else { "" };
        let url = format!("{}{database}", server.url().replace("//", "//bob:pw@"));
        let error = match open(&url, &background).await {
            Err(error) => error,
            Ok(redis) => {
                assert!(["+scan", "+getrange"].contains(taken), "{taken} is not needed to connect");
                granted(redis.claim(&claim(&key("orders/1"), 1, true)).await.unwrap());
                redis.note(&claim(&key("orders/1"), 1, true).stake(), &Record(b"x".to_vec())).await.unwrap();
                let error = redis.list("orders/", None).await.map(|_| ()).unwrap_err();
                redis.release(&claim(&key("orders/1"), 1, true).stake()).await.unwrap();
                error
            }
        };
        assert_eq!(error.kind(), ErrorKind::Denied, "{taken}: {error}");
        let named = taken.trim_start_matches('+');
        assert!(error.to_string().to_lowercase().contains(named), "{taken} is not named: {error}");
    }
}

#[tokio::test]
async fn nobody_at_the_port_is_unavailable() {
    let error = refused("redis://127.0.0.1:1").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}

#[tokio::test]
async fn credentials_are_asked_at_each_connect() {
    let server = Server::start_with(&["--requirepass", "first"]);
    let password = Arc::new(std::sync::Mutex::new("first"));
    let (asked, background) = (password.clone(), Background::threads().unwrap());
    let redis = Redis::options(&server.url())
        .unwrap()
        .credentials(move || Some(Credentials { user: None, password: (*asked.lock().unwrap()).to_owned() }))
        .connect(&background)
        .await
        .unwrap();
    let mut raw = server.raw();
    raw.text(&["AUTH", "first"]);
    raw.text(&["CONFIG", "SET", "requirepass", "second"]);
    raw.number(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let begin = std::time::Instant::now();
    // The request may be written before the end of the line is seen; the next one finds the login refused.
    let errors = [
        redis.claim(&claim(&key("a"), 1, true)).await.unwrap_err(),
        redis.claim(&claim(&key("a"), 1, true)).await.unwrap_err(),
    ];
    assert_eq!(errors[1].kind(), ErrorKind::Denied, "{errors:?}");
    assert!(begin.elapsed() < Duration::from_secs(1));
    *password.lock().unwrap() = "second";
    granted(redis.claim(&claim(&key("a"), 2, true)).await.unwrap());
}

/// A password is rotated as the page says, again and again: both lines are cut each time, no claim fails and no
/// lease is lost.
#[tokio::test]
async fn a_rotated_password_costs_nothing() {
    let server = Server::start();
    let mut raw = server.raw();
    raw.text(&["ACL", "SETUSER", "bob", "reset", "on", ">pw0", "~*", "&*", "+@all"]);
    let (password, calls) =
        (Arc::new(std::sync::Mutex::new("pw0".to_owned())), Arc::new(AtomicUsize::new(0)));
    let (asked, counted, background) = (password.clone(), calls.clone(), Background::threads().unwrap());
    let credentials = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        Some(Credentials { user: Some("bob".to_owned()), password: asked.lock().unwrap().clone() })
    };
    let redis = Redis::options(&server.url()).unwrap().credentials(credentials);
    let redis = redis.connect(&background).await.unwrap();
    let tenure = crate::Tenure::with_background(Arc::new(redis), background);
    let lease = tenure.mutex("kept").ttl(Duration::from_millis(600)).acquire().await.unwrap();
    for round in 1..=3 {
        let (old, new) = (format!("pw{}", round - 1), format!("pw{round}"));
        raw.text(&["ACL", "SETUSER", "bob", &format!(">{new}")]);
        password.lock().unwrap().clone_from(&new);
        raw.text(&["ACL", "SETUSER", "bob", &format!("<{old}")]);
        let before = calls.load(Ordering::SeqCst);
        assert!(raw.number(&["CLIENT", "KILL", "USER", "bob"]) >= 1);
        let over = std::time::Instant::now() + Duration::from_secs(10);
        while calls.load(Ordering::SeqCst) < before + 2 {
            assert!(std::time::Instant::now() < over, "both lines are made anew");
            // The line of renewals is made anew by the next renewal, that of claims by the next claim; one that
            // was written into the cut line may fail.
            if let Ok(Some(other)) = tenure.mutex("other").try_acquire().await {
                other.release().await.unwrap();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tenure.mutex("other").acquire().await.unwrap().release().await.unwrap();
        assert!(lease.is_held());
    }
    assert_eq!(lease.release().await.unwrap(), crate::Released::Released);
}
