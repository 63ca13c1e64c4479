//! What is particular to Redis: other programs in the same database, and what its operators do.

use std::time::{Duration, Instant};

use tenure::{ErrorKind, Released};

use super::leases::ends_before_the_hold;
use super::tools::*;
use crate::harness::{Harness, RedisHarness};
use crate::raw::Value;

cases! { redis:

/// The lock is one plain string with an expiry, which other programs' `SET NX` respects.
async fn r10_the_lock_is_a_plain_string(h) needs [Redis] {
    let (redis, tenure, key) = (redis(h), h.tenure().await, key("plain"));
    let name = redis.physical(&key);
    let lease = tenure.mutex(&key).ttl(LONG).value("note").acquire().await.expect("acquired");
    let value = redis.command(&["GET", &name]).text().expect("a string");
    let parts: Vec<&str> = value.split(':').collect();
    assert_eq!((parts[0], parts[1]), ("t1", lease.owner().to_string().as_str()), "{value}");
    assert!(parts[2].starts_with(&format!("{}@", std::process::id())), "{value}");
    assert_eq!(redis.command(&["SET", &name, "other", "NX", "PX", "30000"]), Value::Nil);
    lease.release().await.expect("released");
    assert_eq!(redis.command(&["SET", &name, "other", "NX", "PX", "30000"]), Value::Text("OK".to_owned()));
}

/// A foreign holder keeps us out; we have the lock soon after it is given back or runs out.
async fn r10_foreign_holder(h) needs [Redis] {
    let (redis, tenure, key) = (redis(h), h.tenure().await, key("foreign"));
    let name = redis.physical(&key);
    for runs_out in [false, true] {
        let term = if runs_out { "600" } else { "30000" };
        redis.command(&["SET", &name, "some-go-program", "NX", "PX", term]);
        let lock = tenure.mutex(&key).ttl(LONG);
        assert!(lock.try_acquire().await.expect("an answer").is_none());
        let error = lock.acquire_within(Duration::from_millis(200)).await.expect_err("it is held");
        assert!(error.is_timed_out(), "{error}");
        assert_eq!(h.truth(&key).await, ["some-go-program"]);
        let waiting = acquiring(lock.clone());
        if !runs_out {
            tokio::time::sleep(Duration::from_millis(400)).await;
            assert!(!waiting.is_finished());
            redis.command(&["DEL", &name]);
        }
        let begun = Instant::now();
        let lease = within(SOON, "the lock", waiting).await.expect("no panic");
        let limit = Duration::from_millis(if runs_out { 1000 } else { 450 });
        assert!(begun.elapsed() < limit, "polled too rarely: {:?}", begun.elapsed());
        lease.release().await.expect("released");
        nothing_is_left(h).await;
    }
}

/// While a foreign program holds the key, only the head of the queue asks, and not too often.
async fn r8_only_the_head_polls_a_foreign_holder(h) needs [Redis, Faults] {
    let (redis, key) = (redis(h), key("polling"));
    redis.command(&["SET", &redis.physical(&key), "foreign", "PX", "30000"]);
    let mut waiting = Vec::new();
    for _ in 0..6 {
        waiting.push(acquiring(h.tenure().await.mutex(&key).ttl(LONG)));
        settle().await;
    }
    let before = redis.line_requests();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let asked = redis.line_requests() - before;
    // 10 to 40 by the head, 2 by each of the 5 others, and as much again to spare.
    assert!((5..=100).contains(&asked), "{asked} requests within 2 s");
    redis.command(&["DEL", &redis.physical(&key)]);
    for task in waiting {
        within(SOON, "the lock", task).await.expect("no panic").release().await.expect("released");
    }
    nothing_is_left(h).await;
}

/// A key that holds something that is no lock is refused and left alone.
async fn r10_what_is_no_lock_is_left_alone(h) needs [Redis] {
    let (redis, tenure) = (redis(h), h.tenure().await);
    let things: [&[&str]; 6] = [
        &["HSET", "", "3f1c:1", "1"],
        &["RPUSH", "", "a"],
        &["SADD", "", "a"],
        &["ZADD", "", "1", "a"],
        &["SET", "", "a value for ever"],
        &["XADD", "", "*", "a", "b"],
    ];
    for thing in things {
        let key = key("thing");
        let name = redis.physical(&key);
        let mut words = thing.to_vec();
        words[1] = &name;
        redis.command(&words);
        let dump = redis.command(&["DUMP", &name]);
        let lock = tenure.mutex(&key).ttl(LONG);
        for result in [
            lock.try_acquire().await.map(drop),
            lock.acquire().await.map(drop),
            lock.acquire_within(Duration::from_millis(300)).await.map(drop),
        ] {
            let error = result.expect_err("no lock");
            assert_eq!(error.kind(), ErrorKind::NotALock, "{thing:?}: {error}");
            assert!(!error.may_have_taken_effect(), "{thing:?}: {error}");
            assert!(error.to_string().contains(key.as_str()), "{error}");
        }
        tenure.engine().release(&claim(&key, LONG).stake()).await.ok();
        assert_eq!(redis.command(&["DUMP", &name]), dump, "{thing:?}");
        assert_eq!(redis.command(&["PTTL", &name]), Value::Int(-1), "{thing:?}");
        redis.command(&["DEL", &name]);
        nothing_is_left(h).await;
    }
}

/// A key that becomes something else under a holder: told as a loss, and left alone.
async fn r10_a_key_that_becomes_something_else(h) needs [Redis] {
    let (redis, tenure, key) = (redis(h), h.tenure().await, key("becomes"));
    let lease = tenure.mutex(&key).ttl(Duration::from_millis(900)).acquire().await.expect("acquired");
    let name = redis.physical(&key);
    redis.command(&["DEL", &name]);
    redis.command(&["HSET", &name, "a", "1"]);
    within(SOON, "the loss", lease.lost()).await;
    assert_eq!(lease.release().await.expect("an answer"), Released::WasLost);
    assert_eq!(redis.command(&["HGET", &name, "a"]), Value::Text("1".to_owned()));
}

/// `SCRIPT FLUSH` between any two steps changes nothing.
async fn scripts_that_are_gone_are_sent_again(h) needs [Redis] {
    let (redis, one, other, key) = (redis(h), h.tenure().await, h.tenure().await, key("flush"));
    let flush = || redis.command(&["SCRIPT", "FLUSH"]);
    for _ in 0..3 {
        flush();
        let lease = one.mutex(&key).ttl(Duration::from_millis(900)).acquire().await.expect("acquired");
        flush();
        assert!(other.mutex(&key).ttl(LONG).try_acquire().await.expect("an answer").is_none());
        flush();
        let waiting = acquiring(other.mutex(&key).ttl(Duration::from_millis(900)));
        settle().await;
        for _ in 0..6 {
            flush();
            tokio::time::sleep(Duration::from_millis(200)).await;
            assert!(lease.is_held() && !waiting.is_finished());
        }
        flush();
        lease.extend(Duration::from_secs(2)).await.expect("extended");
        flush();
        assert_eq!(lease.release().await.expect("an answer"), Released::Released);
        flush();
        let next = within(SOON, "the lock", waiting).await.expect("no panic");
        flush();
        other.engine().look(&key).await.expect("a view");
        other.engine().list("", None).await.expect("a page");
        flush();
        next.release().await.expect("released");
    }
    nothing_is_left(h).await;
}

/// `CLIENT KILL`, of any kind of connection, costs neither holder nor waiter.
async fn killed_connections_cost_nothing(h) needs [Redis] {
    let (redis, holder, waiter, key) = (redis(h), h.tenure().await, h.tenure().await, key("kill"));
    let term = Duration::from_millis(1500);
    for kind in ["normal", "pubsub", "normal"] {
        let lease = holder.mutex(&key).ttl(term).acquire().await.expect("acquired");
        let waiting = acquiring(waiter.mutex(&key).ttl(term));
        settle().await;
        for _ in 0..3 {
            redis.command(&["CLIENT", "KILL", "TYPE", kind]);
            tokio::time::sleep(Duration::from_millis(700)).await;
            assert!(lease.is_held() && !waiting.is_finished(), "{kind}");
        }
        redis.command(&["CLIENT", "KILL", "TYPE", kind]);
        assert_eq!(lease.release().await.expect("an answer"), Released::Released, "{kind}");
        let next = within(Duration::from_secs(5), "the lock", waiting).await.expect("no panic");
        assert_eq!(h.truth(&key).await, [next.owner().to_string()]);
        next.release().await.expect("released");
    }
    nothing_is_left(h).await;
}

/// `CLIENT PAUSE` for less than the term costs nothing; for more, the loss is told in time.
async fn a_paused_server(h) needs [Redis] {
    let (redis, tenure, key) = (redis(h), h.tenure().await, key("pause"));
    let lease = tenure.mutex(&key).ttl(Duration::from_secs(3)).acquire().await.expect("acquired");
    redis.command(&["CLIENT", "PAUSE", "1000", "ALL"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(lease.is_held());
    ends_before_the_hold(h, &lease).await;
    let short = tenure.mutex(format!("{key}/short")).ttl(Duration::from_millis(600));
    let short = short.acquire().await.expect("acquired");
    redis.command(&["CLIENT", "PAUSE", "1500", "ALL"]);
    within(Duration::from_secs(1), "the loss", short.lost()).await;
    assert!(tenure::Moment::now() <= short.valid_until(), "told too late");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(short.release().await.expect("an answer"), Released::WasLost);
    assert_eq!(lease.release().await.expect("an answer"), Released::Released);
    nothing_is_left(h).await;
}

/// `FLUSHALL` under a holder: told as a loss, the queue comes back, tokens go on growing.
async fn r6_tokens_grow_across_flushall(h) needs [Redis] {
    let (redis, holder, waiter, key) = (redis(h), h.tenure().await, h.tenure().await, key("flushall"));
    let mut last = None;
    for _ in 0..3 {
        let lease = holder.mutex(&key).ttl(Duration::from_millis(900)).acquire().await.expect("acquired");
        assert!(Some(lease.token()) > last, "{} after {last:?}", lease.token());
        let waiting = acquiring(waiter.mutex(&key).ttl(Duration::from_millis(900)));
        settle().await;
        redis.command(&["FLUSHALL"]);
        within(SOON, "the loss", lease.lost()).await;
        let next = within(SOON, "the lock", waiting).await.expect("no panic");
        assert!(next.token() > lease.token(), "{} after {}", next.token(), lease.token());
        last = Some(next.token());
        next.release().await.expect("released");
        drop(lease);
    }
    eventually(SOON, "left behind", Vec::<String>::new(), || h.leftovers()).await;
}

/// The counter of tokens is evicted under a holder: the next token is larger all the same, for
/// clients old and new, in the free case and by a hand-over.
async fn r6_tokens_grow_across_eviction_of_the_counter(h) needs [Redis] {
    let (redis, one, other, key) = (redis(h), h.tenure().await, h.tenure().await, key("evicted"));
    let mut last = None;
    for round in 0..6 {
        let lease = one.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
        assert!(Some(lease.token()) > last, "round {round}: {} after {last:?}", lease.token());
        let counters = redis.counters();
        assert!(!counters.is_empty(), "no counter is known: {:?}", redis.all_keys());
        let waiting = acquiring(other.mutex(&key).ttl(LONG));
        settle().await;
        for counter in &counters {
            redis.command(&["DEL", counter]);
        }
        let before = lease.token();
        lease.release().await.expect("released");
        let next = within(SOON, "the lock", waiting).await.expect("no panic");
        assert!(next.token() > before, "round {round}: {} after {before}", next.token());
        let before = next.token();
        next.release().await.expect("released");
        for counter in redis.counters() {
            redis.command(&["DEL", &counter]);
        }
        let newcomer = h.tenure().await;
        let lease = newcomer.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
        assert!(lease.token() > before, "round {round}: {} after {before}", lease.token());
        last = Some(lease.token());
        lease.release().await.expect("released");
    }
    nothing_is_left(h).await;
}

/// A server that is short of memory evicts everything under a holder: told as a loss, tokens go on growing.
async fn r6_eviction_under_a_holder_is_a_loss(h) needs [Redis] {
    let (redis, tenure, key) = (redis(h), h.tenure().await, key("short-of-memory"));
    let lease = tenure.mutex(&key).ttl(Duration::from_millis(900)).acquire().await.expect("acquired");
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    eventually(SOON, "the eviction of everything", 0, || async { redis.all_keys().len() }).await;
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    within(SOON, "the loss", lease.lost()).await;
    let next = within(SOON, "the lock", tenure.mutex(&key).ttl(LONG).acquire()).await.expect("acquired");
    assert!(next.token() > lease.token(), "{} after {}", next.token(), lease.token());
    assert_eq!(lease.release().await.expect("an answer"), Released::WasLost);
    assert!(next.is_held(), "the late release touched it");
    next.release().await.expect("released");
    nothing_is_left(h).await;
}

/// Counters that an operator set back, or far ahead, do no harm.
async fn r6_tokens_grow_across_a_counter_set_back(h) needs [Redis] {
    let (redis, tenure, key) = (redis(h), h.tenure().await, key("set-back"));
    let lock = tenure.mutex(&key).ttl(LONG);
    let mut last = None;
    for value in ["1", "0", "1000", "-5"] {
        let lease = lock.acquire().await.expect("acquired");
        assert!(Some(lease.token()) > last, "{} after {last:?}", lease.token());
        last = Some(lease.token());
        lease.release().await.expect("released");
        for counter in redis.counters() {
            if redis.command(&["GET", &counter]).text().is_some_and(|text| text.parse::<u64>().is_ok()) {
                redis.command(&["SET", &counter, value]);
            }
        }
    }
    nothing_is_left(h).await;
}

/// Everything beside the counters has an expiry while it is there.
async fn everything_has_an_expiry(h) needs [Redis] {
    let (redis, tenure, key) = (redis(h), h.tenure().await, key("expiry"));
    let lease = tenure.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
    let mut waiting = Vec::new();
    for _ in 0..3 {
        waiting.push(acquiring(h.tenure().await.mutex(&key).ttl(LONG)));
    }
    settle().await;
    let names = h.leftovers().await;
    assert!(names.len() >= 2, "no queue is there: {names:?}");
    for name in names {
        let left = redis.command(&["PTTL", &name]).int();
        assert!(left.is_some_and(|left| left > 0), "{name} has no expiry: {left:?}");
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    lease.release().await.expect("released");
    nothing_is_left(h).await;
}

/// Waits on many keys leave no subscription behind.
async fn waits_leave_no_subscription(h) needs [Redis] {
    let (redis, holder, tenure, base) = (redis(h), h.tenure().await, h.tenure().await, key("channels"));
    let channels = || redis.command(&["PUBSUB", "CHANNELS", "*"]).texts().len();
    let mut before = 0;
    for round in 0..2 {
        let mut waits = tokio::task::JoinSet::new();
        let mut leases = Vec::new();
        for number in 0..200 {
            let name = format!("{base}/{round}/{number}");
            leases.push(holder.mutex(&name).ttl(LONG).acquire().await.expect("acquired"));
            let lock = tenure.mutex(&name).ttl(LONG);
            waits.spawn(async move { lock.acquire_within(Duration::from_millis(200)).await });
        }
        for result in waits.join_all().await {
            assert!(result.expect_err("it is held").is_timed_out());
        }
        drop(leases);
        nothing_is_left(h).await;
        if round == 0 {
            before = channels();
            assert!(before <= 4, "{before} channels for two clients");
        }
    }
    assert_eq!(channels(), before);
}

/// Nobody is told anything when nobody waits, and a free lock and its release cost what they must.
async fn r7_no_traffic_for_wakes_when_nobody_waits(h) needs [Redis] {
    let (redis, tenure, key) = (redis(h), h.tenure().await, key("traffic"));
    let lock = tenure.mutex(&key).ttl(LONG);
    lock.acquire().await.expect("acquired").release().await.expect("released");
    redis.command(&["CONFIG", "RESETSTAT"]);
    for _ in 0..100 {
        lock.acquire().await.expect("acquired").release().await.expect("released");
    }
    let stats = redis.command(&["INFO", "commandstats"]).text().expect("a text").to_lowercase();
    assert!(!stats.contains("cmdstat_publish") && !stats.contains("cmdstat_spublish"), "{stats}");
    let calls = |command: &str| {
        let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{command}:calls=")));
        line.and_then(|line| line.split(['=', ',']).nth(1)?.parse::<u64>().ok()).unwrap_or(0)
    };
    assert!(calls("evalsha") >= 100, "scripts are not called by their hash: {stats}");
    assert!(calls("eval") <= 2, "scripts are sent in full: {stats}");
    assert_eq!(calls("keys") + calls("scan"), 0, "{stats}");
}

/// A server that takes no more connections: newcomers are told, whoever is in goes on.
async fn a_server_without_connections(h) needs [Redis] {
    let (redis, holder, waiter, key) = (redis(h), h.tenure().await, h.tenure().await, key("clients"));
    let lease = holder.mutex(&key).ttl(h.ttl()).acquire().await.expect("acquired");
    let mut operator = redis.raw();
    operator.demand(&["CONFIG", "SET", "maxclients", "1"]).expect("set");
    let begun = Instant::now();
    let error = tenure::connect(redis.url()).await.expect_err("no connection is free");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(begun.elapsed() < SOON * 2, "{:?}", begun.elapsed());
    let waiting = acquiring(waiter.mutex(&key).ttl(LONG));
    tokio::time::sleep(h.ttl() * 2).await;
    assert!(lease.is_held());
    lease.release().await.expect("released");
    within(SOON, "the lock", waiting).await.expect("no panic").release().await.expect("released");
    operator.demand(&["CONFIG", "SET", "maxclients", "1000"]).expect("set");
    nothing_is_left(h).await;
}

/// A server that is out of memory: a clear error, and what is there can be given back.
async fn a_server_without_memory(h) needs [Redis] {
    let (redis, tenure, key) = (redis(h), h.tenure().await, key("memory"));
    let lease = tenure.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = tenure.mutex(format!("{key}/other")).ttl(LONG).acquire().await.expect_err("no memory");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert_eq!(lease.release().await.expect("an answer"), Released::Released);
    redis.command(&["CONFIG", "SET", "maxmemory", "0"]);
    tenure.mutex(&key).ttl(LONG).acquire().await.expect("acquired").release().await.expect("released");
    nothing_is_left(h).await;
}

}

/// The Redis behind the harness.
pub(super) fn redis(h: &dyn Harness) -> &RedisHarness {
    h.redis().expect("the case needs Redis")
}
