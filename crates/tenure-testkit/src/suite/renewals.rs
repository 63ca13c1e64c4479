//! Renewals and releases: what is kept, what is told, what is left.

use std::time::Duration;

use tenure::engine::{Released, Renewed, Stake};

use super::tools::*;

cases! { renewals:

/// A renewal prolongs, and a late shorter one does not shorten.
async fn r2_renewal_prolongs_and_never_shortens(h) {
    let (engine, key) = (h.engine().await, key("prolong"));
    let stake = take(&*engine, &key, h.ttl()).await;
    let long = Stake { term: LONG, ..stake.clone() };
    let answers = engine.renew(&[long]).await;
    assert!(matches!(answers[..], [Renewed::Kept(term)] if term <= LONG && term > LONG - SOON), "{answers:?}");
    let answers = engine.renew(&[stake]).await;
    assert!(matches!(answers[..], [Renewed::Kept(term)] if term > LONG - SOON), "{answers:?}");
    let remaining = h.remaining(&key).await.expect("it is held");
    assert!(remaining <= LONG && remaining > LONG - SOON, "{remaining:?}");
}

/// A renewal keeps a hold for much longer than its term.
async fn r2_renewal_keeps(h) {
    let (engine, key) = (h.engine().await, key("keep"));
    let stake = take(&*engine, &key, h.ttl()).await;
    for _ in 0..12 {
        tokio::time::sleep(h.ttl() / 3).await;
        let answers = engine.renew(std::slice::from_ref(&stake)).await;
        assert!(matches!(answers[..], [Renewed::Kept(_)]), "{answers:?}");
        held_by(h, &stake).await;
    }
}

/// A renewal of what is gone tells of the loss and creates nothing.
async fn r2_renewal_never_creates(h) {
    let (engine, key) = (h.engine().await, key("gone"));
    let evicted = take(&*engine, &key, LONG).await;
    h.evict(&key).await;
    let never = claim(&key, LONG).stake();
    for stake in [evicted, never] {
        let answers = engine.renew(&[stake]).await;
        assert!(matches!(answers[..], [Renewed::Lost]), "{answers:?}");
        is_free(h, &key).await;
    }
    let expired = take(&*engine, &key, h.ttl()).await;
    tokio::time::sleep(h.ttl() + Duration::from_millis(20)).await;
    let answers = engine.renew(&[expired]).await;
    assert!(matches!(answers[..], [Renewed::Lost]), "{answers:?}");
    is_free(h, &key).await;
    nothing_is_left(h).await;
}

/// Only the owner renews and releases.
async fn r4_only_the_owner_renews_and_releases(h) {
    let (engine, other, key) = (h.engine().await, h.engine().await, key("owner"));
    let holder = take(&*engine, &key, Duration::from_secs(10)).await;
    // Much alike, and not the same.
    let alike = tenure::Owner::from_id(holder.owner.id() ^ 1);
    for stranger in [claim(&key, LONG).stake(), Stake { owner: alike, ..holder.clone() }] {
        let stranger = Stake { term: LONG, ..stranger };
        let answers = other.renew(std::slice::from_ref(&stranger)).await;
        assert!(matches!(answers[..], [Renewed::Lost]), "{answers:?}");
        assert_eq!(other.release(&stranger).await.expect("an answer"), Released::WasLost);
    }
    held_by(h, &holder).await;
    assert!(h.remaining(&key).await.expect("held") <= Duration::from_secs(10));
}

/// Giving back what somebody else holds by now leaves it to them.
async fn r4_a_late_release_leaves_the_next_holder_alone(h) {
    let (engine, key) = (h.engine().await, key("late"));
    let first = take(&*engine, &key, h.ttl()).await;
    tokio::time::sleep(h.ttl() + Duration::from_millis(20)).await;
    let second = take(&*engine, &key, LONG).await;
    assert_eq!(engine.release(&first).await.expect("an answer"), Released::WasLost);
    let answers = engine.renew(&[first]).await;
    assert!(matches!(answers[..], [Renewed::Lost]), "{answers:?}");
    held_by(h, &second).await;

    h.usurp(&key, LONG).await;
    let truth = h.truth(&key).await;
    assert_eq!(engine.release(&second).await.expect("an answer"), Released::WasLost);
    assert_eq!(h.truth(&key).await, truth);
}

/// Giving back is idempotent.
async fn releasing_twice_is_releasing_once(h) {
    let (engine, key) = (h.engine().await, key("idempotent"));
    let stake = take(&*engine, &key, LONG).await;
    give_back(&*engine, &stake).await;
    assert_eq!(engine.release(&stake).await.expect("an answer"), Released::WasLost);
    is_free(h, &key).await;
    nothing_is_left(h).await;
}

/// Many stakes in one call: one answer each, in order, and none harms another.
async fn r2_one_failure_never_touches_the_others(h) {
    let engine = h.engine().await;
    let mut stakes = Vec::new();
    for number in 0..1000 {
        let key = key(&number.to_string());
        stakes.push(take(&*engine, &key, Duration::from_secs(10)).await);
    }
    for number in (0..1000).step_by(7) {
        h.evict(&stakes[number].key).await;
    }
    let held = take(&*engine, &key("held"), LONG).await;
    let (waiter, _wake) = wait_for(&*engine, &held.key, LONG).await;
    stakes.push(waiter);
    let prolonged: Vec<Stake> = stakes.iter().map(|stake| Stake { term: LONG, ..stake.clone() }).collect();
    let answers = engine.renew(&prolonged).await;
    assert_eq!(answers.len(), stakes.len());
    for (number, answer) in answers.iter().enumerate() {
        let right = match number {
            1000 => matches!(answer, Renewed::Waiting(_)),
            number if number % 7 == 0 => matches!(answer, Renewed::Lost),
            _ => matches!(answer, Renewed::Kept(term) if *term > LONG - SOON),
        };
        assert!(right, "stake {number}: {answer:?}");
    }
    assert!(engine.renew(&[]).await.is_empty());
}

/// A renewal in flight does not undo a release, whichever comes first.
async fn r2_a_renewal_in_flight_does_not_undo_a_release(h) {
    let (engine, key) = (h.engine().await, key("race"));
    for _ in 0..300 {
        let stake = take(&*engine, &key, LONG).await;
        let renewal = {
            let (engine, stake) = (engine.clone(), stake.clone());
            tokio::spawn(async move { engine.renew(&[stake]).await })
        };
        assert_eq!(engine.release(&stake).await.expect("released"), Released::Released);
        renewal.await.expect("an answer");
        is_free(h, &key).await;
    }
    nothing_is_left(h).await;
}

}
