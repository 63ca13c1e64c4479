//! Logins and rights on Redis: refused at once, by name, and without showing a secret (R12).

use std::time::{Duration, Instant};

use tenure::{Error, ErrorKind};

use super::redis::redis;
use super::tools::*;

/// The commands that `docs/engines/redis.md` asks for; a test compares the two.
pub const DOCUMENTED: &str = "+hello +select +info +subscribe +ping +evalsha +eval +time +type +get +set +del +incr \
    +exists +pexpire +pttl +publish +zadd +zrem +zrange +zrank +zscore +zcard +zpopmin +hset +hget \
    +hdel +scan +getrange";

/// Names and channels that go with them, for the keys of the suite.
const NAMES: &str = "~suite-* ~tenure:* &tenure:*";

const PASSWORD: &str = "Tr0ub4dor";

cases! { access:

/// A wrong password, or none, is told at once and not tried again for ever.
async fn a_wrong_password_is_denied_at_once(h) needs [Redis] {
    user(h, "app", &format!("{NAMES} {DOCUMENTED}"));
    // The last raw command: from now on the default user has a password too.
    redis(h).command(&["ACL", "SETUSER", "default", "resetpass", &format!(">{PASSWORD}")]);
    for login in ["app:wrong-S3cret@", ":wrong-S3cret@", "nobody:wrong-S3cret@", ""] {
        let begun = Instant::now();
        let error = connect(h, login).await.expect_err("a wrong password");
        assert_eq!(error.kind(), ErrorKind::Denied, "{login}: {error}");
        assert!(begun.elapsed() < SOON, "{login}: {:?}", begun.elapsed());
        shows_no_secret(&error, "wrong-S3cret");
    }
}

/// A password that is changed under a client: new lines are denied and it says so.
async fn a_login_that_is_withdrawn_is_denied(h) needs [Redis] {
    user(h, "app", &format!("{NAMES} {DOCUMENTED}"));
    let tenure = connect(h, &format!("app:{PASSWORD}@")).await.expect("connected");
    let lock = tenure.mutex(key("withdrawn")).ttl(LONG);
    lock.acquire().await.expect("acquired").release().await.expect("released");
    redis(h).command(&["ACL", "DELUSER", "app"]);
    let begun = Instant::now();
    let error = within(Duration::from_secs(5), "an error", lock.acquire()).await.expect_err("withdrawn");
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    shows_no_secret(&error, PASSWORD);
}

/// Rights that are missing are named when connecting, and nothing weaker is done instead.
async fn missing_rights_are_named(h) needs [Redis] {
    for (rules, named) in [
        ("~* &* +@all -evalsha", "evalsha"),
        ("~* &* +@all -info", "info"),
        ("~* &* +@all -subscribe", "subscribe"),
        ("~* &* +@all -publish", "publish"),
        ("~* &* +@all -set", "set"),
        ("~* resetchannels +@all", "channel"),
        ("~other:* &* +@all", "key"),
    ] {
        user(h, "app", rules);
        let error = match connect(h, &format!("app:{PASSWORD}@")).await {
            Err(error) => error,
            // Which keys are allowed can be seen only where one is used.
            Ok(tenure) => match tenure.mutex(key("rights")).ttl(LONG).acquire().await {
                Err(error) if rules.starts_with("~other") => error,
                other => panic!("{rules}: {other:?}"),
            },
        };
        assert_eq!(error.kind(), ErrorKind::Denied, "{rules}: {error}");
        assert!(error.to_string().to_lowercase().contains(named), "{rules}: {named} is not named: {error}");
        shows_no_secret(&error, PASSWORD);
        nothing_is_left(h).await;
    }
}

/// The rights of the documentation are enough.
async fn the_documented_rights_are_enough(h) needs [Redis] {
    user(h, "app", &format!("{NAMES} {DOCUMENTED}"));
    let (one, two) = (connect(h, &format!("app:{PASSWORD}@")).await, connect(h, &format!("app:{PASSWORD}@")).await);
    let (one, two, key) = (one.expect("connected"), two.expect("connected"), key("rights"));
    let lease = one.mutex(&key).ttl(h.ttl()).acquire().await.expect("acquired");
    let waiting = acquiring(two.mutex(&key).ttl(LONG));
    tokio::time::sleep(h.ttl() * 2).await;
    assert!(lease.is_held());
    lease.extend(LONG).await.expect("extended");
    two.engine().look(&key).await.expect("a view");
    two.engine().list("suite-", None).await.expect("a page");
    lease.release().await.expect("released");
    within(SOON, "the lock", waiting).await.expect("no panic").release().await.expect("released");
    nothing_is_left(h).await;
}

/// No message and no `Debug` shows the password, whatever goes wrong.
async fn r12_secrets_never_appear(h) needs [Redis] {
    user(h, "app", &format!("{NAMES} {DOCUMENTED}"));
    let tenure = connect(h, &format!("app:{PASSWORD}@")).await.expect("connected");
    let lock = tenure.mutex(key("secret")).ttl(LONG);
    let lease = lock.acquire().await.expect("acquired");
    for text in [
        format!("{tenure:?} {tenure:#?}"),
        format!("{lock:?} {lock:#?}"),
        format!("{lease:?} {lease:#?}"),
        format!("{:?} {:#?}", tenure.engine(), tenure.engine()),
    ] {
        assert!(!text.contains(PASSWORD), "{text}");
    }
    redis(h).server().kill();
    let other = tenure.mutex(key("secret")).ttl(LONG);
    let error = other.acquire().await.expect_err("the server is gone");
    shows_no_secret(&error, PASSWORD);
    let error = connect(h, &format!("app:{PASSWORD}@")).await.expect_err("the server is gone");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    shows_no_secret(&error, PASSWORD);
    for bad in ["redis://app:PW@/", "redis://app:PW@h:99999", "redis://app:PW@h/x", "redis://app:PW@h/?no=1", "nope://app:PW@h", "redis:app:PW"] {
        let error = tenure::connect(bad.replace("PW", PASSWORD)).await.expect_err("a bad URL");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        shows_no_secret(&error, PASSWORD);
    }
}

}

/// Makes a user, or gives it other rights.
fn user(h: &dyn crate::harness::Harness, name: &str, rules: &str) {
    let password = format!(">{PASSWORD}");
    let mut words = vec!["ACL", "SETUSER", name, "reset", "on", &password];
    words.extend(rules.split_whitespace());
    redis(h).command(&words);
}

fn plain_url(h: &dyn crate::harness::Harness, login: &str) -> String {
    format!("redis://{login}{}", redis(h).server().address())
}

async fn connect(h: &dyn crate::harness::Harness, login: &str) -> tenure::Result<tenure::Tenure> {
    tenure::connect(plain_url(h, login)).await
}

#[track_caller]
fn shows_no_secret(error: &Error, secret: &str) {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        text.push_str(&format!(" {error} {error:?}"));
        source = error.source();
    }
    assert!(!text.contains(secret), "{text}");
}
