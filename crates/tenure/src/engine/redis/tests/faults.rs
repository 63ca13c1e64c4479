//! Lines that break, servers that freeze, forget and come back.

use std::time::Instant;

use super::*;

const LIMIT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn forgotten_scripts_are_sent_again() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    for round in 0..3_u128 {
        server.raw().text(&["SCRIPT", "FLUSH"]);
        let (first, second) = (claim(&key, 10 * round + 1, true), claim(&key, 10 * round + 2, true));
        granted(redis.claim(&first).await.unwrap());
        let mut place = busy(redis.claim(&second).await.unwrap());
        server.raw().text(&["SCRIPT", "FLUSH"]);
        redis.release(&first.stake()).await.unwrap();
        assert!(matches!((&mut place.wake).await, Woken::Granted(_)));
        server.raw().text(&["SCRIPT", "FLUSH"]);
        assert!(matches!(redis.renew(&[second.stake()]).await[..], [Renewed::Kept(_)]));
        redis.release(&second.stake()).await.unwrap();
    }
    // And known ones are not.
    let mut raw = server.raw();
    raw.text(&["CONFIG", "RESETSTAT"]);
    for _ in 0..10 {
        granted(redis.claim(&claim(&key, 77, true)).await.unwrap());
        redis.release(&claim(&key, 77, true).stake()).await.unwrap();
    }
    let stats = raw.text(&["INFO", "commandstats"]);
    assert!(stats.contains("cmdstat_evalsha:calls=10") && !stats.contains("cmdstat_eval:"), "{stats}");
}

#[tokio::test]
async fn numbers_grow_across_flushall_and_a_lost_counter() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    let mut last = granted(redis.claim(&claim(&key, 1, true)).await.unwrap()).raw;
    for n in 2..5 {
        server.raw().text(&["FLUSHALL"]);
        assert!(matches!(redis.renew(&[claim(&key, n - 1, true).stake()]).await[..], [Renewed::Lost]));
        let grant = granted(redis.claim(&claim(&key, n, true)).await.unwrap());
        assert!(grant.raw > last, "{} after {last}", grant.raw);
        last = grant.raw;
        server.raw().number(&["DEL", "tenure:token"]);
        let mut place = busy(redis.claim(&claim(&key, 100 + n, true)).await.unwrap());
        redis.release(&claim(&key, n, true).stake()).await.unwrap();
        let Woken::Granted(pushed) = (&mut place.wake).await else { panic!("not handed over") };
        assert!(pushed.raw > last);
        last = pushed.raw;
        redis.release(&claim(&key, 100 + n, true).stake()).await.unwrap();
    }
}

#[tokio::test]
async fn a_restart_without_data_loses_the_hold_and_numbers_grow() {
    let mut server = Server::start();
    let redis = client_with(&server, LIMIT).await;
    let key = key("a");
    let first = granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    server.kill();
    let error = redis.claim(&claim(&key, 2, true)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let later = redis.claim(&claim(&key, 3, true)).await.unwrap_err();
    assert!(!later.may_have_taken_effect(), "{later}");
    assert!(matches!(redis.renew(&[claim(&key, 1, true).stake()]).await[..], [Renewed::Unknown(_)]));
    server.run();
    // What waits when the server is back is carried over to the new line.
    let again = loop {
        match redis.claim(&claim(&key, 4, true)).await {
            Ok(answer) => break granted(answer),
            Err(error) => assert!(!error.may_have_taken_effect(), "{error}"),
        }
    };
    assert!(again.raw > first.raw);
    assert!(matches!(
        redis.renew(&[claim(&key, 1, true).stake()]).await[..],
        [Renewed::Waiting(_) | Renewed::Lost]
    ));
}

#[tokio::test]
async fn a_restart_with_data_keeps_hold_and_places() {
    let mut server = Server::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let redis = client(&server).await;
    let key = key("a");
    let first = granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    let mut place = busy(redis.claim(&claim(&key, 2, true)).await.unwrap());
    server.kill();
    server.run();
    let woken = tokio::time::timeout(Duration::from_secs(3), &mut place.wake).await.unwrap();
    assert_eq!(woken, Woken::Ask);
    let mut answer = redis.renew(&[claim(&key, 2, true).stake()]).await;
    let Some(Renewed::Waiting(mut place)) = answer.pop() else { panic!("{answer:?}") };
    assert!(matches!(redis.renew(&[claim(&key, 1, true).stake()]).await[..], [Renewed::Kept(_)]));
    redis.release(&claim(&key, 1, true).stake()).await.unwrap();
    let Woken::Granted(grant) = (&mut place.wake).await else { panic!("not handed over") };
    assert!(grant.raw > first.raw);
}

#[tokio::test]
async fn a_lost_place_leaves_no_mailbox() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    let mut place = busy(redis.claim(&claim(&key, 2, true)).await.unwrap());
    redis.pushes.ask_all();
    assert_eq!((&mut place.wake).await, Woken::Ask);
    server.raw().text(&["FLUSHALL"]);
    assert!(matches!(redis.renew(&[claim(&key, 2, true).stake()]).await[..], [Renewed::Lost]));
    drop(place);
    assert_eq!(redis.pushes.count(), 0);
}

#[tokio::test]
async fn more_requests_than_the_bound_are_refused() {
    let server = Server::start();
    let redis = client_with(&server, Duration::from_secs(20)).await;
    server.freeze();
    let stake = claim(&key("a"), 1, true).stake();
    let mut asked = Vec::new();
    for n in 0..connection::MOST_OUTSTANDING {
        let request = calls::release(Names::new("", &key("a")).unwrap(), Owner::from_id(n as u128), b"c", 0);
        asked.push(redis.commands.ask(request));
    }
    let error = redis.release(&stake).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(!error.may_have_taken_effect());
    server.thaw();
    for answer in asked {
        assert_eq!(answer.await.unwrap(), [Value::Int(0)]);
    }
    assert_eq!(redis.release(&stake).await.unwrap(), Released::WasLost);
}

#[tokio::test]
async fn a_frozen_server_costs_the_limit_and_answers_later_requests_rightly() {
    let server = Server::start();
    let redis = client_with(&server, LIMIT).await;
    let key = key("a");
    server.freeze();
    let begin = Instant::now();
    let error = redis.claim(&claim(&key, 1, true)).await.unwrap_err();
    assert!(error.may_have_taken_effect() && error.kind() == ErrorKind::Unavailable, "{error}");
    assert!((LIMIT..LIMIT * 2).contains(&begin.elapsed()), "{:?}", begin.elapsed());
    server.thaw();
    // The late answer of the first claim belongs to it and to nothing else.
    assert_eq!(redis.release(&claim(&key, 1, true).stake()).await.unwrap(), Released::Released);
    let grant = granted(redis.claim(&claim(&key, 2, true)).await.unwrap());
    assert!(grant.made);
    let holder = redis.look(&key).await.unwrap().holders.remove(0);
    assert_eq!(holder.owner, Some(Owner::from_id(2)));
}

#[tokio::test]
async fn a_server_frozen_for_long_gets_a_new_line() {
    let server = Server::start();
    let redis = client_with(&server, LIMIT).await;
    let key = key("a");
    server.freeze();
    redis.claim(&claim(&key, 1, true)).await.unwrap_err();
    tokio::time::sleep(LIMIT * 2).await;
    server.thaw();
    let mut raw = server.raw();
    // The old line was closed by this end, so that only the line for renewals is left.
    let over = Instant::now() + Duration::from_secs(5);
    while raw.text(&["CLIENT", "LIST", "TYPE", "pubsub"]).contains("name=tenure") {
        assert!(Instant::now() < over);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The swallowed claim took effect, so it is undone down the new line.
    redis.release(&claim(&key, 1, true).stake()).await.unwrap();
    granted(redis.claim(&claim(&key, 2, true)).await.unwrap());
}

#[tokio::test]
async fn a_killed_connection_lets_waiters_ask_and_keeps_their_places() {
    let server = Server::start();
    let (holder, waiter) = (client(&server).await, client(&server).await);
    let key = key("a");
    granted(holder.claim(&claim(&key, 1, true)).await.unwrap());
    let mut place = busy(waiter.claim(&claim(&key, 2, true)).await.unwrap());
    server.raw().number(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    let woken = tokio::time::timeout(Duration::from_secs(2), &mut place.wake).await.unwrap();
    assert_eq!(woken, Woken::Ask);
    let mut answer = waiter.renew(&[claim(&key, 2, true).stake()]).await;
    let Some(Renewed::Waiting(mut place)) = answer.pop() else { panic!("{answer:?}") };
    assert_eq!(place.ahead, Some(0));
    holder.release(&claim(&key, 1, true).stake()).await.unwrap();
    let woken = tokio::time::timeout(Duration::from_secs(2), &mut place.wake).await.unwrap();
    assert!(matches!(woken, Woken::Granted(_)));
}

#[tokio::test]
async fn a_lost_push_shows_when_the_place_is_refreshed() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    let place = busy(redis.claim(&claim(&key, 2, true)).await.unwrap());
    redis.pushes.ask_all();
    let mut wake = place.wake;
    assert_eq!((&mut wake).await, Woken::Ask); // nobody listens now: as good as lost
    redis.release(&claim(&key, 1, true).stake()).await.unwrap();
    let stake = claim(&key, 2, true).stake();
    assert!(matches!(redis.renew(std::slice::from_ref(&stake)).await[..], [Renewed::Kept(_)]));
    let grant = granted(redis.claim(&claim(&key, 2, true)).await.unwrap());
    assert!(!grant.made);
    redis.release(&stake).await.unwrap();
    assert_eq!(redis.pushes.count(), 0);
}

#[tokio::test]
async fn a_full_memory_is_a_definite_refusal() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    let mut place = busy(redis.claim(&claim(&key, 2, true)).await.unwrap());
    server.raw().text(&["CONFIG", "SET", "maxmemory", "1"]);
    let error = redis.claim(&claim(&super::key("b"), 3, true)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("out of memory") && !error.may_have_taken_effect(), "{error}");
    // What is held is still given back, to whoever waits.
    assert_eq!(redis.release(&claim(&key, 1, true).stake()).await.unwrap(), Released::Released);
    let woken = tokio::time::timeout(Duration::from_secs(2), &mut place.wake).await.unwrap();
    assert!(matches!(woken, Woken::Granted(_)));
}

#[tokio::test]
async fn many_tasks_share_flights_and_get_their_own_answers() {
    let server = Server::start();
    let redis = Arc::new(client(&server).await);
    let tasks: Vec<_> = (0..200_u128)
        .map(|n| {
            let redis = redis.clone();
            tokio::spawn(async move {
                let mut last = 0;
                for round in 0..20 {
                    let claim = claim(&key(&format!("k{n}")), n * 100 + round + 1, true);
                    let grant = granted(redis.claim(&claim).await.unwrap());
                    assert!(grant.raw > last);
                    last = grant.raw;
                    assert_eq!(redis.release(&claim.stake()).await.unwrap(), Released::Released);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}
