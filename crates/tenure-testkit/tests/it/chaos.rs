//! What Chaos does, on a paused clock.

use std::sync::Arc;
use std::time::Duration;

use tenure::engine::memory::Memory;
use tenure::engine::{Answer, Busy, Claim, Engine, Mode, Renewed, Woken};
use tenure::{Background, ErrorKind, Key, Owner};
use tenure_testkit::chaos::{Chaos, Faults};
use tokio::time::{Instant, sleep, timeout};

const TERM: Duration = Duration::from_secs(30);
const ALWAYS: u32 = 1000;

struct Store {
    store: Memory,
    background: Background,
}

impl Store {
    fn new() -> Store {
        let background = Background::on_this_runtime(1);
        Store { store: Memory::new(&background), background }
    }

    fn chaos(&self, faults: Faults) -> Chaos {
        Chaos::new(Arc::new(self.store.client(&self.background)), faults, 7)
    }
}

fn ask(owner: u128) -> Claim {
    let key = Key::new("orders/42").expect("a key");
    Claim {
        key,
        owner: Owner::from_id(owner),
        mode: Mode::Exclusive,
        term: TERM,
        value: Vec::new(),
        join: true,
    }
}

async fn busy(engine: &dyn Engine, claim: &Claim) -> Busy {
    match engine.claim(claim).await.expect("an answer") {
        Answer::Busy(busy) => busy,
        Answer::Granted(grant) => panic!("granted: {grant:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_request_does_nothing_and_a_lost_reply_says_nothing() {
    for (faults, held) in [
        (Faults { lost_request: ALWAYS, ..Faults::none() }, 0),
        (Faults { lost_reply: ALWAYS, ..Faults::none() }, 1),
    ] {
        let store = Store::new();
        let began = Instant::now();
        let error = store.chaos(faults).claim(&ask(1)).await.expect_err("no answer");
        assert_eq!((error.kind(), error.may_have_taken_effect()), (ErrorKind::Unavailable, true));
        assert_eq!(began.elapsed(), Duration::from_secs(2), "told at the time limit");
        assert_eq!(store.store.census().holders, held);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cut_line_errs_early_and_the_request_may_come_after_its_undo() {
    let store = Store::new();
    let chaos = store.chaos(Faults { cut: ALWAYS, slow: ALWAYS, ..Faults::none() });
    let began = Instant::now();
    chaos.claim(&ask(1)).await.expect_err("cut");
    assert!(began.elapsed() <= Duration::from_millis(101), "{:?}", began.elapsed());
    store.store.release(&ask(1).stake()).await.expect("undone");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(store.store.census().holders, 1, "it came after its undo, and within its time limit");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_future_takes_nothing_back() {
    let store = Store::new();
    let chaos = store.chaos(Faults { delay: Duration::from_millis(100), ..Faults::none() });
    timeout(Duration::from_millis(1), chaos.claim(&ask(1))).await.expect_err("still under way");
    sleep(Duration::from_millis(200)).await;
    assert_eq!(store.store.census().holders, 1);
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_renewal_comes_late_and_a_copy_of_a_claim_does_not() {
    let store = Store::new();
    let chaos = store.chaos(Faults { duplicate: ALWAYS, ..Faults::none() });
    chaos.claim(&ask(1)).await.expect("granted");
    assert_eq!(store.store.census().holders, 1);
    store.store.release(&ask(1).stake()).await.expect("released");
    sleep(Duration::from_secs(5)).await;
    assert_eq!(store.store.census().holders, 0);

    chaos.claim(&ask(2)).await.expect("granted");
    let renewed = chaos.renew(&[ask(2).stake()]).await;
    assert!(matches!(renewed.as_slice(), [Renewed::Kept(_)]));
    sleep(Duration::from_secs(3)).await;
    let view = store.store.look(&ask(2).key).await.expect("a view");
    assert!(view.holders[0].remaining > TERM - Duration::from_secs(3), "the copy prolonged it once more");
}

#[tokio::test(start_paused = true)]
async fn pushes_are_lost_after_being_counted_or_find_nobody() {
    for (faults, holders) in
        [(Faults { lost_push: ALWAYS, ..Faults::none() }, 1), (Faults { deaf: ALWAYS, ..Faults::none() }, 0)]
    {
        let store = Store::new();
        let chaos = store.chaos(faults);
        store.store.claim(&ask(1)).await.expect("granted");
        let waiting = busy(&chaos, &ask(2)).await;
        let waiting = tokio::spawn(waiting.wake);
        sleep(Duration::from_secs(1)).await;
        store.store.release(&ask(1).stake()).await.expect("released");
        sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        assert_eq!(store.store.census().holders, holders);
        waiting.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_push_is_taken_back_by_the_store_if_nobody_listens_any_more() {
    let store = Store::new();
    let chaos = store.chaos(Faults { late_push: ALWAYS, ..Faults::none() });
    store.store.claim(&ask(1)).await.expect("granted");
    let waiting = busy(&chaos, &ask(2)).await;
    let waiting = tokio::spawn(waiting.wake);
    let mut next = busy(&store.store, &ask(3)).await;
    sleep(Duration::from_millis(1)).await;
    store.store.release(&ask(1).stake()).await.expect("released");
    assert!(timeout(Duration::ZERO, &mut next.wake).await.is_err());
    waiting.abort();
    let woken = timeout(Duration::from_millis(1), &mut next.wake).await.expect("handed on");
    assert!(matches!(woken, Woken::Granted(_)));
}

#[tokio::test(start_paused = true)]
async fn who_is_cut_off_neither_speaks_nor_hears_until_it_is_calm() {
    let store = Store::new();
    let chaos = store.chaos(Faults::none());
    store.store.claim(&ask(1)).await.expect("granted");
    let waiting = busy(&chaos, &ask(2)).await;
    let waiting = tokio::spawn(waiting.wake);
    sleep(Duration::from_millis(1)).await;
    chaos.cut_off(Duration::from_secs(60));
    assert!(matches!(chaos.renew(&[ask(2).stake()]).await.as_slice(), [Renewed::Unknown(_)]));
    store.store.release(&ask(1).stake()).await.expect("released");
    sleep(Duration::from_millis(1)).await;
    assert!(!waiting.is_finished(), "the push was counted, and did not come");
    chaos.calm();
    assert!(matches!(chaos.renew(&[ask(2).stake()]).await.as_slice(), [Renewed::Kept(_)]));
    chaos.die();
    assert!(chaos.release(&ask(2).stake()).await.is_err());
    waiting.abort();
}
