//! The engine against real servers: what only Redis does. The shared suite covers the rest.

mod faults;
mod lines;
mod rights;
mod server;
mod socket;
mod waiting;

use std::time::Duration;

use self::server::Server;
use super::*;
use crate::engine::Grant;
use crate::key::Owner;

const TERM: Duration = Duration::from_secs(30);

async fn client(server: &Server) -> Redis {
    let background = Background::threads().unwrap();
    Redis::options(&server.url()).unwrap().connect(&background).await.unwrap()
}

async fn client_with(server: &Server, limit: Duration) -> Redis {
    let background = Background::threads().unwrap();
    Redis::options(&server.url()).unwrap().request_limit(limit).connect(&background).await.unwrap()
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn claim(key: &Key, owner: u128, join: bool) -> Claim {
    let owner = Owner::from_id(owner);
    Claim { key: key.clone(), owner, mode: Mode::Exclusive, term: TERM, value: b"v".to_vec(), join }
}

fn granted(answer: Answer) -> Grant {
    match answer {
        Answer::Granted(grant) => grant,
        Answer::Busy(busy) => panic!("busy: {busy:?}"),
    }
}

fn busy(answer: Answer) -> Busy {
    match answer {
        Answer::Busy(busy) => busy,
        Answer::Granted(grant) => panic!("granted: {grant:?}"),
    }
}

#[tokio::test]
async fn a_free_key_is_taken_with_a_number_and_given_back() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("orders/42");
    let first = claim(&key, 1, true);
    let grant = granted(redis.claim(&first).await.unwrap());
    assert!(grant.made && grant.term == TERM && grant.raw > redis.commands.floor());

    let mut raw = server.raw();
    let value = raw.text(&["GET", "orders/42"]);
    assert!(value.starts_with("t1:00000000000000000000000000000001:"), "{value}");
    assert!(value.ends_with(":dg=="), "{value}");
    assert!((1..=30_000).contains(&raw.number(&["PTTL", "orders/42"])));

    let other = busy(redis.claim(&claim(&key, 2, false)).await.unwrap());
    assert_eq!((other.ahead, other.holder.is_some()), (None, true));
    assert_eq!(redis.release(&claim(&key, 2, false).stake()).await.unwrap(), Released::WasLost);
    assert_eq!(redis.release(&first.stake()).await.unwrap(), Released::Released);
    assert_eq!(redis.release(&first.stake()).await.unwrap(), Released::WasLost);
    let next = granted(redis.claim(&claim(&key, 3, true)).await.unwrap());
    assert!(next.raw > grant.raw);
    redis.release(&claim(&key, 3, true).stake()).await.unwrap();
    // Nothing stays but the counter.
    let mut left = raw.texts(&["KEYS", "*"]);
    left.sort();
    assert_eq!(left, ["tenure:token", "tenure:token:run"]);
}

#[tokio::test]
async fn claiming_twice_is_claiming_once_with_a_new_number() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    let first = granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    let again = Claim { value: b"new".to_vec(), term: TERM * 2, ..claim(&key, 1, true) };
    let second = granted(redis.claim(&again).await.unwrap());
    assert!(!second.made && second.raw > first.raw && second.term <= TERM);
    let view = redis.look(&key).await.unwrap();
    assert_eq!(view.holders[0].value, b"new");
    assert!(view.holders[0].remaining <= TERM);
}

#[tokio::test]
async fn a_renewal_prolongs_and_never_shortens_nor_creates() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    let stake = claim(&key, 1, true).stake();
    assert!(matches!(redis.renew(std::slice::from_ref(&stake)).await[..], [Renewed::Lost]));
    assert_eq!(server.raw().number(&["EXISTS", "a"]), 0);

    granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    let longer = Stake { term: TERM * 2, ..stake.clone() };
    assert!(matches!(redis.renew(&[longer]).await[..], [Renewed::Kept(term)] if term == TERM * 2));
    let kept = redis.renew(std::slice::from_ref(&stake)).await;
    assert!(matches!(kept[..], [Renewed::Kept(term)] if term > TERM), "{kept:?}");
    assert!(server.raw().number(&["PTTL", "a"]) > 30_000);
}

#[tokio::test]
async fn thousands_of_renewals_go_in_a_batch_and_are_told_apart() {
    let server = Server::start();
    let redis = client(&server).await;
    let stakes: Vec<Stake> = (0..5000).map(|n| claim(&key(&format!("k{n}")), n + 1, true).stake()).collect();
    for n in (0..5000).step_by(100) {
        granted(redis.claim(&claim(&key(&format!("k{n}")), n + 1, true)).await.unwrap());
    }
    server.raw().text(&["SCRIPT", "FLUSH"]);
    let renewed = redis.renew(&stakes).await;
    assert_eq!(renewed.len(), 5000);
    for (n, renewed) in renewed.iter().enumerate() {
        let right =
            if n % 100 == 0 { matches!(renewed, Renewed::Kept(_)) } else { matches!(renewed, Renewed::Lost) };
        assert!(right, "{n}: {renewed:?}");
    }
}

#[tokio::test]
async fn what_is_no_lock_is_named_and_left_alone() {
    let server = Server::start();
    let redis = client(&server).await;
    let mut raw = server.raw();
    raw.number(&["HSET", "hash", "a", "b"]);
    raw.text(&["SET", "plain", "text"]);
    for (name, kind) in [("hash", "hash"), ("plain", "string without expiry")] {
        let key = key(name);
        for join in [true, false] {
            let error = redis.claim(&claim(&key, 1, join)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotALock);
            assert!(error.to_string().contains(kind) && !error.may_have_taken_effect(), "{error}");
        }
        assert_eq!(redis.release(&claim(&key, 1, true).stake()).await.unwrap(), Released::WasLost);
        assert_eq!(redis.look(&key).await.unwrap_err().kind(), ErrorKind::NotALock);
    }
    assert_eq!(raw.text(&["HGET", "hash", "a"]), "b");
    assert_eq!(raw.text(&["GET", "plain"]), "text");
}

#[tokio::test]
async fn a_record_needs_the_hold_and_outlives_it() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("job");
    let stake = claim(&key, 1, true).stake();
    let record = Record(b"done:\x00\xff".to_vec());
    assert!(redis.note(&stake, &record).await.unwrap_err().is_lost());
    granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    redis.note(&stake, &record).await.unwrap();
    redis.release(&stake).await.unwrap();
    let view = redis.look(&key).await.unwrap();
    assert!(view.holders.is_empty());
    let (stored, age) = view.note.unwrap();
    assert_eq!(stored, record);
    assert!(age < Duration::from_secs(5));
}

#[tokio::test]
async fn a_listing_names_locks_only() {
    let server = Server::start();
    let background = Background::threads().unwrap();
    let redis =
        Redis::options(&server.url()).unwrap().prefix("p:").unwrap().connect(&background).await.unwrap();
    for n in 0..30 {
        granted(redis.claim(&claim(&key(&format!("a*{n}")), n + 1, true)).await.unwrap());
    }
    granted(redis.claim(&claim(&key("ab"), 99, true)).await.unwrap());
    server.raw().text(&["SET", "p:a*foreign", "x", "PX", "10000"]);
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let page = redis.list("a*", after).await.unwrap();
        keys.extend(page.keys);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(keys.len(), 30);
    assert!(redis.list("", Some(Cursor("x y".into()))).await.is_err());
}

#[tokio::test]
async fn other_modes_are_refused_by_name() {
    let server = Server::start();
    let redis = client(&server).await;
    let shared = Claim { mode: Mode::Shared, ..claim(&key("a"), 1, true) };
    let error = redis.claim(&shared).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().starts_with("claim \"a\" on redis"), "{error}");
    assert!(matches!(redis.renew(&[shared.stake()]).await[..], [Renewed::Unknown(_)]));
}

#[test]
fn golden_figures() {
    let server = Server::start();
    let recorder = metrics_util::debugging::DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let redis = metrics::with_local_recorder(&recorder, || runtime.block_on(client(&server)));
    granted(runtime.block_on(redis.claim(&claim(&key("secret-key"), 1, true))).unwrap());
    let mut figures: Vec<String> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(figure, ..)| {
            let labels: Vec<_> =
                figure.key().labels().map(|l| format!("{}={}", l.key(), l.value())).collect();
            format!("{:?} {} {}", figure.kind(), figure.key().name(), labels.join(","))
        })
        .collect();
    figures.sort();
    assert_eq!(
        figures,
        [
            "Counter tenure_flights_total engine=redis",
            "Histogram tenure_engine_roundtrip_seconds engine=redis",
            "Histogram tenure_flight_size engine=redis",
        ]
    );
}
