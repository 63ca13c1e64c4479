//! Looking, listing, and records beside keys.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure::ErrorKind;
use tenure::engine::{Claim, Mode, Record};

use super::tools::*;

cases! { views:

/// A view shows who holds, for how long, with what value, and who waits, in order.
async fn a_view_shows_holder_and_waiters(h) {
    let (engine, other, key) = (h.engine().await, h.engine().await, key("view"));
    let empty = engine.look(&key).await.expect("a view");
    assert!(empty.holders.is_empty() && empty.waiters.is_empty() && empty.note.is_none(), "{empty:?}");

    let value = b"\0\xff:value \r\n".to_vec();
    let mine = Claim { value: value.clone(), ..claim(&key, LONG) };
    grant_of(engine.claim(&mine).await);
    let (second, _wake) = wait_for(&*other, &key, LONG).await;
    let (third, _wake) = wait_for(&*engine, &key, LONG).await;
    let view = other.look(&key).await.expect("a view");
    assert_eq!(view.waiters, [second.owner, third.owner]);
    let [holder] = &view.holders[..] else { panic!("{view:?}") };
    assert_eq!((holder.owner, holder.mode, &holder.value), (Some(mine.owner), Mode::Exclusive, &value));
    assert!(holder.remaining <= LONG && holder.remaining > LONG - SOON, "{holder:?}");
    let host = holder.host.as_deref().expect("it says who it is");
    assert!(host.starts_with(&format!("{}@", std::process::id())), "{host}");
}

/// A view does not change what it looks at.
async fn a_view_changes_nothing(h) {
    let (engine, key) = (h.engine().await, key("look"));
    engine.look(&key).await.expect("a view");
    nothing_is_left(h).await;
    let stake = take(&*engine, &key, Duration::from_secs(10)).await;
    engine.look(&key).await.expect("a view");
    held_by(h, &stake).await;
    assert!(h.remaining(&key).await.expect("held") <= Duration::from_secs(10));
}

/// A view names all that the store keeps of the key: nothing else is there, and no other key shares it.
async fn r9_a_view_has_the_physical_names(h) {
    let (engine, other, key) = (h.engine().await, h.engine().await, key("names"));
    let free = engine.look(&key).await.expect("a view").physical;
    assert!(free.first().is_some_and(|name| name.contains(key.as_str())), "{free:?}");
    let stake = take(&*engine, &key, LONG).await;
    let (_waiter, _wake) = wait_for(&*other, &key, LONG).await;
    if engine.promises().notes {
        engine.note(&stake, &Record(b"done".to_vec())).await.expect("stored");
    }
    let names = other.look(&key).await.expect("a view").physical;
    assert_eq!(names, free, "they do not depend on what is there");
    if let Some(redis) = h.redis() {
        let mut kept = redis.all_keys();
        kept.retain(|name| !redis.counters().contains(name));
        let mut told = names.clone();
        told.sort_unstable();
        assert_eq!(kept, told);
    }
    for longer in [format!("{key}/1"), format!("{key}:queue"), format!("{key}}}")] {
        let others = tenure::Key::new(longer).expect("a good key");
        let others = engine.look(&others).await.expect("a view").physical;
        assert!(others.iter().all(|name| !names.contains(name)), "{others:?} {names:?}");
    }
}

/// A listing has every key that is held and starts with the text, and no other, in pages.
async fn a_listing_has_every_key(h) {
    let (engine, base) = (h.engine().await, key("list"));
    let mut wanted = BTreeSet::new();
    let mut stakes = Vec::new();
    for number in 0..1500 {
        let key = tenure::Key::new(format!("{base}/a{{x}}*{number}")).expect("a good key");
        stakes.push(take(&*engine, &key, LONG).await);
        wanted.insert(key);
    }
    let other = tenure::Key::new(format!("{base}/b")).expect("a good key");
    stakes.push(take(&*engine, &other, LONG).await);
    let (_waiter, _wake) = wait_for(&*engine, &other, LONG).await;
    let (mut found, mut cursor, mut pages) = (BTreeSet::new(), None, 0);
    loop {
        let page = engine.list(&format!("{base}/a{{x}}*"), cursor).await.expect("a page");
        found.extend(page.keys);
        cursor = page.next;
        pages += 1;
        assert!(pages < 10_000, "the listing does not end");
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, wanted);
}

/// A record is stored only by the holder and outlives the hold; or it is refused.
async fn notes_are_kept_or_refused(h) {
    let (engine, key) = (h.engine().await, key("note"));
    let record = Record(b"done\0\xff".to_vec());
    let stake = take(&*engine, &key, LONG).await;
    if !engine.promises().notes {
        let error = engine.note(&stake, &record).await.expect_err("not promised");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(engine.promises().engine), "{error}");
        give_back(&*engine, &stake).await;
        return nothing_is_left(h).await;
    }
    engine.note(&stake, &record).await.expect("stored");
    give_back(&*engine, &stake).await;
    let error = engine.note(&stake, &Record(b"late".to_vec())).await.expect_err("it is not held");
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    tokio::time::sleep(Duration::from_millis(30)).await;
    let (kept, age) = engine.look(&key).await.expect("a view").note.expect("it outlives the hold");
    assert_eq!(kept, record);
    assert!(age >= Duration::from_millis(30) && age < SOON, "{age:?}");
}

}
