//! Queues, pushes, and those who do not come for what is theirs.

use std::time::Instant;

use super::*;

async fn woken(busy: &mut Busy) -> Woken {
    tokio::time::timeout(Duration::from_secs(5), &mut busy.wake).await.expect("a wake within five seconds")
}

async fn pushed(busy: &mut Busy) -> Grant {
    match woken(busy).await {
        Woken::Granted(grant) => grant,
        Woken::Ask => panic!("asked instead of granted"),
    }
}

#[tokio::test]
async fn a_release_hands_the_key_over_in_order_of_arrival() {
    let server = Server::start();
    let (one, two) = (client(&server).await, client(&server).await);
    let key = key("a");
    let mut last = granted(one.claim(&claim(&key, 1, true)).await.unwrap());
    let mut waiters = Vec::new();
    for n in 2..6 {
        let engine = if n % 2 == 0 { &one } else { &two };
        let place = busy(engine.claim(&claim(&key, n, true)).await.unwrap());
        assert_eq!(place.ahead, Some(usize::try_from(n).unwrap() - 2));
        waiters.push((n, engine, place));
    }
    assert_eq!(one.look(&key).await.unwrap().waiters, [2, 3, 4, 5].map(Owner::from_id));
    let mut holder: (u128, &Redis) = (1, &one);
    for (n, engine, mut place) in waiters {
        assert_eq!(holder.1.release(&claim(&key, holder.0, true).stake()).await.unwrap(), Released::Released);
        let grant = pushed(&mut place).await;
        assert!(!grant.made && grant.raw > last.raw);
        assert_eq!(grant.term, crate::pushed_term(TERM));
        assert!(
            matches!(engine.renew(&[claim(&key, n, true).stake()]).await[..], [Renewed::Kept(term)] if term == TERM)
        );
        last = grant;
        holder = (n, engine);
    }
    holder.1.release(&claim(&key, holder.0, true).stake()).await.unwrap();
    assert!(one.look(&key).await.unwrap().holders.is_empty());
    assert_eq!(server.raw().number(&["DBSIZE"]), 2);
}

#[tokio::test]
async fn a_try_waits_for_nothing_and_leaves_nothing() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    busy(redis.claim(&claim(&key, 2, false)).await.unwrap());
    assert!(redis.look(&key).await.unwrap().waiters.is_empty());
    assert_eq!(redis.pushes.count(), 0);
}

#[tokio::test]
async fn a_waiter_that_gives_up_leaves_the_queue() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    let _second = busy(redis.claim(&claim(&key, 2, true)).await.unwrap());
    let mut third = busy(redis.claim(&claim(&key, 3, true)).await.unwrap());
    assert_eq!(redis.release(&claim(&key, 2, true).stake()).await.unwrap(), Released::Released);
    redis.release(&claim(&key, 1, true).stake()).await.unwrap();
    pushed(&mut third).await;
}

#[tokio::test]
async fn a_grant_for_nobody_is_handed_on() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    drop(busy(redis.claim(&claim(&key, 2, true)).await.unwrap()));
    let mut third = busy(redis.claim(&claim(&key, 3, true)).await.unwrap());
    redis.release(&claim(&key, 1, true).stake()).await.unwrap();
    pushed(&mut third).await;
}

#[tokio::test]
async fn a_message_that_was_not_read_does_not_hand_back_a_later_hold() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    let place = busy(redis.claim(&claim(&key, 2, true)).await.unwrap());
    redis.release(&claim(&key, 1, true).stake()).await.unwrap();
    // A refresh says that it is held. Before the owner asks for a number the hold expires, as it does
    // when the process stands still; the message lies unread.
    assert!(matches!(redis.renew(&[claim(&key, 2, true).stake()]).await[..], [Renewed::Kept(_)]));
    server.raw().number(&["DEL", "a"]);
    assert!(granted(redis.claim(&claim(&key, 2, false)).await.unwrap()).made);
    drop(place);
    // Down the same line, behind what may have been sent.
    assert_eq!(redis.look(&key).await.unwrap().holders.len(), 1);
    assert_eq!(server.raw().number(&["EXISTS", "a"]), 1);
}

#[tokio::test]
async fn a_dead_waiter_at_the_head_is_skipped() {
    let server = Server::start();
    let (one, dead, two) = (client(&server).await, client(&server).await, client(&server).await);
    let key = key("a");
    granted(one.claim(&claim(&key, 1, true)).await.unwrap());
    let _gone = busy(dead.claim(&claim(&key, 2, true)).await.unwrap());
    let mut third = busy(two.claim(&claim(&key, 3, true)).await.unwrap());
    dead.background.stop();
    while server.raw().texts(&["PUBSUB", "CHANNELS"]).len() > 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let begin = Instant::now();
    one.release(&claim(&key, 1, true).stake()).await.unwrap();
    pushed(&mut third).await;
    assert!(begin.elapsed() < Duration::from_millis(500));
}

#[tokio::test]
async fn a_place_that_is_not_refreshed_is_lost_and_one_that_is_stays() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    let short = |owner| Claim { term: Duration::from_millis(150), ..claim(&key, owner, true) };
    let _lazy = busy(redis.claim(&short(2)).await.unwrap());
    let mut eager = busy(redis.claim(&short(3)).await.unwrap());
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(40)).await;
        let answer = redis.renew(&[short(3).stake()]).await;
        assert!(matches!(answer[..], [Renewed::Waiting(_)]), "{answer:?}");
    }
    assert!(matches!(redis.renew(&[short(2).stake()]).await[..], [Renewed::Lost]));
    redis.release(&claim(&key, 1, true).stake()).await.unwrap();
    pushed(&mut eager).await;
}

#[tokio::test]
async fn a_newcomer_that_passes_a_queue_hands_the_key_over() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    let mut second = busy(redis.claim(&claim(&key, 2, true)).await.unwrap());
    // As if it had expired just now.
    server.raw().number(&["DEL", "a"]);
    let third = busy(redis.claim(&claim(&key, 3, true)).await.unwrap());
    assert_eq!(third.ahead, Some(0));
    let grant = pushed(&mut second).await;
    server.raw().number(&["DEL", "a"]);
    assert!(busy(redis.claim(&claim(&key, 4, false)).await.unwrap()).ahead.is_none());
    let mut third = third;
    assert!(pushed(&mut third).await.raw > grant.raw);
}

#[tokio::test]
async fn a_queue_of_the_dead_stops_nobody() {
    let server = Server::start();
    let (redis, dead) = (client(&server).await, client(&server).await);
    let key = key("a");
    granted(dead.claim(&claim(&key, 1, true)).await.unwrap());
    drop(busy(dead.claim(&claim(&key, 2, true)).await.unwrap()));
    dead.background.stop();
    while server.raw().texts(&["PUBSUB", "CHANNELS"]).len() > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.raw().number(&["DEL", "a"]);
    let grant = granted(redis.claim(&claim(&key, 3, true)).await.unwrap());
    assert!(grant.made && grant.term == TERM);
    assert!(server.raw().number(&["PTTL", "a"]) > 20_000);
}

#[tokio::test]
async fn after_an_expiry_the_refresh_of_any_place_serves_the_head() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    granted(redis.claim(&Claim { term: Duration::from_millis(100), ..claim(&key, 1, true) }).await.unwrap());
    let mut second = busy(redis.claim(&claim(&key, 2, true)).await.unwrap());
    let _third = busy(redis.claim(&claim(&key, 3, true)).await.unwrap());
    assert!(second.ask_within <= Duration::from_millis(102));
    tokio::time::sleep(Duration::from_millis(110)).await;
    assert!(matches!(redis.renew(&[claim(&key, 3, true).stake()]).await[..], [Renewed::Waiting(_)]));
    pushed(&mut second).await;
    assert!(matches!(redis.renew(&[claim(&key, 2, true).stake()]).await[..], [Renewed::Kept(_)]));
}

#[tokio::test]
async fn a_foreign_holder_excludes_and_is_asked_again_soon() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    server.raw().text(&["SET", "a", "foreign-secret", "NX", "PX", "20000"]);
    let place = busy(redis.claim(&claim(&key, 1, true)).await.unwrap());
    assert!(!place.holder.unwrap().contains("secret"));
    assert!((Duration::from_millis(50)..Duration::from_millis(200)).contains(&place.ask_within));
    assert_eq!(redis.release(&claim(&key, 2, true).stake()).await.unwrap(), Released::WasLost);
    let answer = redis.renew(&[claim(&key, 1, true).stake()]).await;
    assert!(matches!(&answer[..], [Renewed::Waiting(busy)] if busy.ask_within < Duration::from_millis(200)));
    let holder = redis.look(&key).await.unwrap().holders.remove(0);
    assert_eq!((holder.owner, holder.value), (None, Vec::new()));
}

#[tokio::test]
async fn the_longest_queue_is_4096() {
    let server = Server::start();
    let redis = client(&server).await;
    let key = key("a");
    granted(redis.claim(&claim(&key, 1, true)).await.unwrap());
    let mut places = Vec::new();
    for n in 0..4096 {
        places.push(busy(redis.claim(&claim(&key, n + 2, true)).await.unwrap()));
    }
    let error = redis.claim(&claim(&key, 9999, true)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(!error.may_have_taken_effect());
}

/// Enters as the core does: waits for the push, and refreshes the place where that is due.
async fn enter(redis: &Redis, key: &Key, owner: &mut u128) -> u64 {
    'stay: loop {
        *owner += 1_000;
        let claim = claim(key, *owner, true);
        let mut place = match redis.claim(&claim).await.unwrap() {
            Answer::Granted(grant) => return grant.raw,
            Answer::Busy(place) => place,
        };
        let mut ask_within = place.ask_within;
        let mut asleep = true;
        loop {
            tokio::select! {
                biased;
                woken = &mut place.wake, if asleep => match woken {
                    Woken::Granted(grant) => return grant.raw,
                    Woken::Ask => asleep = false,
                },
                () = tokio::time::sleep(ask_within) => {}
            }
            match redis.renew(&[claim.stake()]).await.remove(0) {
                Renewed::Waiting(busy) => ask_within = busy.ask_within,
                Renewed::Kept(_) => return granted(redis.claim(&claim).await.unwrap()).raw,
                Renewed::Lost => continue 'stay,
                Renewed::Unknown(_) => {}
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_hand_one_key_around_while_renewal_lines_break() {
    let server = Server::start();
    let key = key("a");
    // Who is in, and the last number: what the lock protects.
    let protected = Arc::new(std::sync::Mutex::new((None, 0)));
    let until = Instant::now() + Duration::from_secs(2);
    let mut clients = Vec::new();
    for n in 1..=8_u128 {
        let (redis, key, protected) = (client(&server).await, key.clone(), protected.clone());
        clients.push(tokio::spawn(async move {
            let (mut owner, mut turns) = (n, 0);
            while Instant::now() < until {
                let raw = enter(&redis, &key, &mut owner).await;
                let before = std::mem::replace(&mut *protected.lock().unwrap(), (Some(owner), raw));
                assert_eq!(before.0, None, "{owner} entered beside another");
                assert!(raw > before.1, "{raw} after {}", before.1);
                tokio::task::yield_now().await;
                protected.lock().unwrap().0 = None;
                while redis.release(&claim(&key, owner, true).stake()).await.is_err() {}
                turns += 1;
            }
            turns
        }));
    }
    let mut raw = server.raw();
    while Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(150)).await;
        // Lines for renewals break and scripts are forgotten; nobody may notice. The lines for claims are
        // spared: an unknown claim is the core's to undo.
        let ids = raw.text(&["CLIENT", "LIST", "TYPE", "normal"]);
        let renewals = ids.lines().find(|line| line.contains("name=tenure"));
        if let Some(id) = renewals.and_then(|line| line.strip_prefix("id=")?.split(' ').next()) {
            raw.number(&["CLIENT", "KILL", "ID", id]);
        }
        raw.text(&["SCRIPT", "FLUSH"]);
    }
    let mut least = usize::MAX;
    for client in clients {
        least = least.min(client.await.unwrap());
    }
    assert!(least > 20, "somebody had only {least} turns");
    assert!(server.raw().number(&["EXISTS", "a"]) == 0);
}
