//! What is checked at connect.

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

#[tokio::test]
async fn the_stated_rights_suffice() {
    let server = Server::start();
    // The very line that users copy.
    let page = include_str!("../../../../../../docs/engines/redis.md");
    let (_, line) = page.split_once("ACL SETUSER tenure on >password ").unwrap();
    let (line, _) = line.split_once("```").unwrap();
    let mut acl = vec!["ACL", "SETUSER", "bob", "reset", "on", ">pw"];
    acl.extend(line.split_whitespace());
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
