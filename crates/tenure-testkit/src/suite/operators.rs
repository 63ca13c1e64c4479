//! What an operator does: look at keys, list them, and take one from its holder.

use std::time::{Duration, Instant};

use tenure::engine::{Claim, Mode};
use tenure::{ErrorKind, LossCause, Released};

use super::tools::*;
use crate::raw::Value;

cases! { operators:

/// Whoever waits gets a key that is taken from its holder, with a greater token; the holder learns it
/// within a renewal, and can do no harm to its successor.
async fn a_forced_release_passes_the_key_on(h) {
    let (holder, next, operator, key) = (h.tenure().await, h.tenure().await, h.tenure().await, key("forced"));
    let term = Duration::from_millis(900);
    let lease = holder.mutex(&key).ttl(term).acquire().await.expect("acquired");
    let waiting = acquiring(next.mutex(&key).ttl(LONG));
    eventually(SOON, "its place", 1, || async { operator.look(&key).await.expect("a view").waiters.len() }).await;
    let seen = operator.look(&key).await.expect("a view");
    let gone = operator.force_release(&key, &seen.holders).await.expect("released");
    let forced = Instant::now();
    assert_eq!(gone.iter().map(|holder| holder.owner).collect::<Vec<_>>(), [Some(lease.owner())]);

    let cause = within(SOON, "the loss", lease.lost()).await;
    assert!(forced.elapsed() < term / 3 + Duration::from_millis(250), "told after {:?}", forced.elapsed());
    assert_eq!(cause, LossCause::Taken);
    let successor = within(SOON, "the lock", waiting).await.expect("no panic");
    assert!(successor.token() > lease.token());
    assert_eq!(lease.release().await.expect("an answer"), Released::WasLost);
    assert_eq!(h.truth(&key).await, [successor.owner().to_string()]);
    assert!(successor.is_held());
    successor.release().await.expect("released");
    nothing_is_left(h).await;
}

/// Where nobody waits, the key is free at once, and the next token is greater.
async fn a_forced_release_frees_the_key(h) {
    let (holder, operator, key) = (h.tenure().await, h.tenure().await, key("freed"));
    let lease = holder.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
    let seen = operator.look(&key).await.expect("a view");
    assert_eq!(operator.force_release(&key, &seen.holders).await.expect("released").len(), 1);
    is_free(h, &key).await;
    let next = operator.mutex(&key).ttl(LONG).try_acquire().await.expect("an answer").expect("it is free");
    assert!(next.token() > lease.token());
    next.release().await.expect("released");
    assert_eq!(lease.release().await.expect("an answer"), Released::WasLost);
    nothing_is_left(h).await;
}

/// Only who was seen has to go: whoever entered since stays, and a free key is no failure.
async fn a_forced_release_spares_who_came_since(h) {
    let (one, other, key) = (h.tenure().await, h.tenure().await, key("spared"));
    let lease = one.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
    let seen = other.look(&key).await.expect("a view").holders;
    lease.release().await.expect("released");
    let lease = one.mutex(&key).ttl(LONG).acquire().await.expect("acquired");
    assert_eq!(other.force_release(&key, &seen).await.expect("an answer"), []);
    assert_eq!(h.truth(&key).await, [lease.owner().to_string()]);
    lease.release().await.expect("released");
    let seen = other.look(&key).await.expect("a view").holders;
    assert_eq!(other.force_release(&key, &seen).await.expect("an answer"), []);
    nothing_is_left(h).await;
}

/// All who share a key have to go.
async fn a_forced_release_takes_it_from_all_who_share_it(h) {
    let (engine, operator, key) = (h.engine().await, h.tenure().await, key("shared"));
    for mode in [Mode::Shared, Mode::Permits { take: 1, of: 2 }] {
        let claims = [(); 2].map(|()| Claim { mode, ..attempt(&key, LONG) });
        let promised = if mode == Mode::Shared { engine.promises().shared } else { engine.promises().permits };
        if !promised {
            let error = engine.claim(&claims[0]).await.expect_err("not promised");
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            continue;
        }
        for claim in &claims {
            grant_of(engine.claim(claim).await);
        }
        let seen = operator.look(&key).await.expect("a view");
        assert_eq!(operator.force_release(&key, &seen.holders).await.expect("released").len(), 2);
        is_free(h, &key).await;
    }
    nothing_is_left(h).await;
}

/// A holder that is no client of Tenure's is left alone; the message says what to do by hand.
async fn r10_a_forced_release_leaves_others_alone(h) needs [Redis] {
    let (redis, operator, key) = (h.redis().expect("needed"), h.tenure().await, key("foreign"));
    let name = redis.physical(&key);
    redis.command(&["SET", &name, "some-go-program", "PX", "30000"]);
    let seen = operator.look(&key).await.expect("a view");
    let error = operator.force_release(&key, &seen.holders).await.expect_err("not ours");
    assert_eq!(error.kind(), ErrorKind::NotALock, "{error}");
    assert!(!error.may_have_taken_effect());
    let text = error.to_string();
    assert!(text.starts_with(&format!("force_release \"{key}\" on redis: ")), "{text}");
    assert!(text.contains("by hand"), "{text}");
    assert_eq!(redis.command(&["GET", &name]), Value::Text("some-go-program".to_owned()));
    redis.command(&["DEL", &name]);
}

/// A listing is sorted, has no key twice, ends at its limit, and says so.
async fn a_listing_ends_at_its_limit(h) {
    let (tenure, base) = (h.tenure().await, key("held"));
    let mut leases = Vec::new();
    for number in 0..25 {
        leases.push(tenure.mutex(format!("{base}/{number:02}")).ttl(LONG).acquire().await.expect("acquired"));
    }
    let wanted: Vec<_> = leases.iter().map(|lease| lease.key().clone()).collect();
    let start = format!("{base}/");
    for limit in [25, 1000] {
        let listing = tenure.held(&start, limit).await.expect("a listing");
        assert_eq!((&listing.keys, listing.complete), (&wanted, true));
    }
    let some = tenure.held(&start, 10).await.expect("a listing");
    assert_eq!((some.keys.len(), some.complete), (10, false));
    assert!(some.keys.is_sorted() && some.keys.iter().all(|key| wanted.contains(key)), "{some:?}");
    let none = tenure.held(&format!("{base}/x"), 10).await.expect("a listing");
    assert_eq!((none.keys.len(), none.complete), (0, true));
    for lease in leases {
        lease.release().await.expect("released");
    }
    nothing_is_left(h).await;
}

/// The list of engines tells what a client of this one promises.
async fn r11_the_list_of_engines_tells_its_promises(h) {
    let promises = h.engine().await.promises();
    let known = tenure::engine::known();
    let known = known.iter().find(|known| known.promises.engine == promises.engine).expect("it is listed");
    assert!(!known.urls.is_empty());
    assert!(promises.longest_term <= known.promises.longest_term);
    assert_eq!(tenure::Promises { longest_term: known.promises.longest_term, ..promises }, known.promises);
}

/// What goes wrong names operation, key and engine; a closed client asks nobody.
async fn r12_operators_errors_say_what_was_asked(h) {
    let (tenure, key) = (h.tenure().await, key("errors"));
    let engine = tenure.promises().engine;
    let error = tenure.look("a\nb").await.expect_err("a bad key");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().starts_with(&format!("look on {engine}: ")), "{error}");
    let seen = tenure.look(&key).await.expect("a view");
    let closed = tenure.clone();
    tenure.close().await.expect("closed");
    let errors = [
        ("look", closed.look(&key).await.map(drop)),
        ("held", closed.held("", 1).await.map(drop)),
        ("force_release", closed.force_release(&key, &seen.holders).await.map(drop)),
    ];
    for (operation, result) in errors {
        let error = result.expect_err("closed");
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        assert!(error.to_string().starts_with(operation), "{error}");
    }
}

}
