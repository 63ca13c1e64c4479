//! Claims: who gets in, and with which number.

use std::time::{Duration, Instant};

use tenure::engine::{Answer, Claim, Engine, Mode, Stake};
use tenure::{ErrorKind, Token};

use super::tools::*;

cases! { claims:

/// A free key is granted in one answer, for the whole term.
async fn a_free_key_is_granted(h) {
    let (engine, key) = (h.engine().await, key("free"));
    let claim = claim(&key, LONG);
    let grant = grant_of(engine.claim(&claim).await);
    assert!(grant.made);
    assert_eq!(grant.term, LONG);
    assert!((1..Token::RAW_END).contains(&grant.raw), "{grant:?}");
    held_by(h, &claim.stake()).await;
    let remaining = h.remaining(&key).await.expect("it is held");
    assert!(remaining <= LONG && remaining > LONG - SOON, "{remaining:?}");
    give_back(&*engine, &claim.stake()).await;
    is_free(h, &key).await;
    nothing_is_left(h).await;
}

/// Many at once, from several clients, and one holder at any time.
async fn excludes(h) {
    let key = key("excludes");
    let mut engines = Vec::new();
    for _ in 0..8 {
        engines.push(h.engine().await);
    }
    let mut numbers = Vec::new();
    for _ in 0..20 {
        let mut tries = tokio::task::JoinSet::new();
        for engine in &engines {
            let (engine, claim) = (engine.clone(), attempt(&key, LONG));
            tries.spawn(async move {
                let answer = engine.claim(&claim).await.expect("an answer");
                if let Answer::Granted(grant) = answer { Some((claim.stake(), grant)) } else { None }
            });
        }
        let granted: Vec<_> = tries.join_all().await.into_iter().flatten().collect();
        assert_eq!(granted.len(), 1, "{granted:?}");
        held_by(h, &granted[0].0).await;
        numbers.push(granted[0].1.raw);
        give_back(&*engines[0], &granted[0].0).await;
    }
    assert!(numbers.is_sorted_by(|earlier, later| earlier < later), "{numbers:?}");
}

/// A try that finds the key busy leaves nothing behind that could hold others up.
async fn a_try_leaves_nothing(h) {
    let (engine, key) = (h.engine().await, key("try"));
    let holder = take(&*engine, &key, LONG).await;
    let busy = busy_of(engine.claim(&attempt(&key, LONG)).await);
    assert_eq!(busy.ahead, None);
    give_back(&*engine, &holder).await;
    is_free(h, &key).await;
    nothing_is_left(h).await;
}

/// Asking again as the holder changes the value, mints a number, and never touches the term.
async fn asking_twice_is_asking_once(h) {
    let (engine, key) = (h.engine().await, key("twice"));
    let first = claim(&key, Duration::from_secs(10));
    let grant = grant_of(engine.claim(&first).await);
    let again = Claim { value: b"changed".to_vec(), term: LONG, ..first.clone() };
    let second = grant_of(engine.claim(&again).await);
    assert!(!second.made);
    assert!(second.raw > grant.raw, "{second:?} after {grant:?}");
    held_by(h, &first.stake()).await;
    let remaining = h.remaining(&key).await.expect("it is held");
    assert!(remaining <= first.term, "asking again lengthened the term to {remaining:?}");
    assert!(remaining > first.term - SOON, "asking again shortened the term to {remaining:?}");
    let view = engine.look(&key).await.expect("a view");
    assert_eq!(view.holders[0].value, b"changed");
    give_back(&*engine, &first.stake()).await;
    is_free(h, &key).await;
}

/// Asking again as a waiter keeps the place.
async fn asking_twice_keeps_the_place(h) {
    let (engine, key) = (h.engine().await, key("place"));
    let holder = take(&*engine, &key, LONG).await;
    let waiter = claim(&key, LONG);
    let first = busy_of(engine.claim(&waiter).await);
    let (behind, _wake) = wait_for(&*engine, &key, LONG).await;
    let again = busy_of(engine.claim(&waiter).await);
    assert_eq!(again.ahead, Some(0));
    assert_eq!(engine.look(&key).await.expect("a view").waiters, [waiter.owner, behind.owner]);
    give_back(&*engine, &holder).await;
    // One push; which of the two answers it comes by is the engine's affair.
    tokio::select! {
        _ = pushed(first) => {}
        _ = pushed(again) => {}
    }
    held_by(h, &waiter.stake()).await;
}

/// A hold ends by itself, not before its term and not long after.
async fn expiry_frees(h) {
    let (engine, key) = (h.engine().await, key("expiry"));
    let begun = Instant::now();
    let holder = take(&*engine, &key, h.ttl()).await;
    let second = loop {
        match engine.claim(&attempt(&key, LONG)).await.expect("an answer") {
            Answer::Granted(grant) => break grant,
            Answer::Busy(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    };
    let lasted = begun.elapsed();
    assert!(lasted >= h.ttl(), "it ended after {lasted:?}");
    assert!(lasted < h.ttl() + SOON, "it ended only after {lasted:?}");
    assert!(second.raw > holder.raw.expect("granted"));
}

/// Numbers grow with every grant: over clients, keys given back, and keys that ran out.
async fn r6_numbers_grow(h) {
    let key = key("numbers");
    let engines = [h.engine().await, h.engine().await, h.engine().await];
    let mut last = 0;
    for round in 0..60 {
        let term = if round % 20 == 0 { h.ttl() } else { LONG };
        let stake = take(&*engines[round % 3], &key, term).await;
        let raw = stake.raw.expect("granted");
        assert!(raw > last, "{raw} after {last} in round {round}");
        last = raw;
        if term == LONG {
            give_back(&*engines[(round + 1) % 3], &stake).await;
        } else {
            tokio::time::sleep(term + Duration::from_millis(20)).await;
        }
    }
}

/// Keys that are much alike are different keys, and every key that is allowed works.
async fn r9_every_allowed_key_is_a_key_of_its_own(h) {
    let engine = h.engine().await;
    let base = key("names");
    let mut names: Vec<String> = ["", "/", "//", "/a", "/A", "/a/b", "/a:b", "/{a}", "/{a", "/a}", "/{}", "/{}{x}",
        "/a b", "/*", "/?", "/[a]", "/\\", "/\"'", "/ä", "/a\u{308}", "/日本語", "/🔒", ":q", ":fence", "%00", "/t1:"]
        .iter().map(|end| format!("{base}{end}")).collect();
    names.push(format!("{base}/{}", "x".repeat(1024 - base.as_str().len() - 1)));
    names.push(format!("{base}/{}y", "x".repeat(1024 - base.as_str().len() - 2)));
    let mut stakes = Vec::new();
    for name in &names {
        let key = tenure::Key::new(name).expect("an allowed key");
        stakes.push(take(&*engine, &key, LONG).await);
    }
    for stake in &stakes {
        held_by(h, stake).await;
        let (waiter, wake) = wait_for(&*engine, &stake.key, LONG).await;
        give_back(&*engine, stake).await;
        pushed(wake).await;
        held_by(h, &waiter).await;
        give_back(&*engine, &waiter).await;
    }
    nothing_is_left(h).await;
}

/// Terms at the bounds are kept, terms beyond them are refused by the engine too, unharmed.
async fn r5_terms_at_the_bounds(h) {
    let engine = h.engine().await;
    let promises = engine.promises();
    for (name, term) in [("shortest", promises.shortest_term), ("longest", promises.longest_term)] {
        let stake = take(&*engine, &key(name), term).await;
        let remaining = h.remaining(&stake.key).await;
        assert!(remaining.is_none_or(|left| left <= term), "{name}: {remaining:?}");
        give_back(&*engine, &stake).await;
    }
    nothing_is_left(h).await;
}

/// Shared holders are in together and keep an exclusive one out; or they are refused.
async fn shared_holds_are_shared_or_refused(h) {
    let (engine, key) = (h.engine().await, key("shared"));
    let shared = || Claim { mode: Mode::Shared, ..claim(&key, LONG) };
    if !engine.promises().shared {
        return refuses(h, &*engine, &shared()).await;
    }
    let (one, two) = (shared(), shared());
    grant_of(engine.claim(&one).await);
    grant_of(engine.claim(&two).await);
    busy_of(engine.claim(&attempt(&key, LONG)).await);
    give_back(&*engine, &one.stake()).await;
    busy_of(engine.claim(&attempt(&key, LONG)).await);
    give_back(&*engine, &two.stake()).await;
    grant_of(engine.claim(&attempt(&key, LONG)).await);
}

/// Permits are counted; or they are refused.
async fn permits_are_counted_or_refused(h) {
    let (engine, key) = (h.engine().await, key("permits"));
    let permits = |take| Claim { mode: Mode::Permits { take, of: 3 }, join: false, ..claim(&key, LONG) };
    if !engine.promises().permits {
        return refuses(h, &*engine, &permits(1)).await;
    }
    let two = permits(2);
    grant_of(engine.claim(&two).await);
    busy_of(engine.claim(&permits(2)).await);
    grant_of(engine.claim(&permits(1)).await);
    busy_of(engine.claim(&permits(1)).await);
    give_back(&*engine, &two.stake()).await;
    grant_of(engine.claim(&permits(2)).await);
}

}

/// An engine refuses what it does not promise, names it, and has written nothing.
async fn refuses(h: &dyn crate::harness::Harness, engine: &dyn Engine, claim: &Claim) {
    let error = engine.claim(claim).await.expect_err("not promised");
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(!error.may_have_taken_effect(), "{error}");
    assert!(error.to_string().contains(engine.promises().engine), "{error}");
    let stake = Stake { raw: None, ..claim.stake() };
    is_free(h, &stake.key).await;
    nothing_is_left(h).await;
}
