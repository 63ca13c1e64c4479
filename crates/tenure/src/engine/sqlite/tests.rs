//! What cannot be brought about from outside: another boot, a suspended machine, a file that goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

use super::*;
use crate::background::Clock;
use crate::client::Tenure;
use crate::engine::{Grant, Mode};
use crate::hold::LossCause;
use crate::key::Owner;
use crate::time::Moment;

const LONG: Duration = Duration::from_secs(30);

/// The machine's clock, and what it ran on beside.
#[derive(Debug, Default)]
struct Suspended(AtomicU64);

impl Suspended {
    fn sleep(&self, span: Duration) {
        self.0.fetch_add(u64::try_from(span.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for Suspended {
    fn now(&self) -> Moment {
        Moment::now() + Duration::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

struct Place {
    folder: TempDir,
    clock: Arc<Suspended>,
    background: Background,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::Builder::new().prefix("tenure-sqlite-").tempdir().unwrap();
        let clock = Arc::new(Suspended::default());
        let background = Background::on_this_runtime_with(1, clock.clone());
        Place { folder, clock, background }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("locks.sqlite")
    }

    async fn open(&self) -> Sqlite {
        Sqlite::at(self.path(), &self.background).await.unwrap()
    }

    async fn open_in(&self, boot: &str) -> Sqlite {
        let options = Options { path: self.path(), longest_term: LONGEST_TERM };
        Sqlite::start_in(Boot(boot.into()), options, &self.background).await.unwrap()
    }

    fn claim(&self) -> Claim {
        let (key, owner) = (Key::new("a/key").unwrap(), self.background.owner());
        Claim { key, owner, mode: Mode::Exclusive, term: LONG, value: Vec::new(), join: false }
    }

    /// As somebody does who cleans up.
    fn delete(&self) {
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{end}", self.path().display()));
        }
    }
}

async fn granted(engine: &Sqlite, claim: &Claim) -> Grant {
    match engine.claim(claim).await {
        Ok(Answer::Granted(grant)) => grant,
        other => panic!("{other:?}"),
    }
}

async fn is_busy(engine: &Sqlite, claim: &Claim) -> bool {
    matches!(engine.claim(claim).await, Ok(Answer::Busy(_)))
}

#[tokio::test]
async fn r1_terms_run_on_while_the_machine_is_suspended() {
    let place = Place::new();
    let engine = Arc::new(place.open().await);
    let holder = Tenure::with_background(engine.clone(), place.background.clone());
    let lease = holder.mutex("a/key").ttl(LONG).acquire().await.unwrap();
    let (other, claim) = (place.open().await, place.claim());
    place.clock.sleep(LONG / 2);
    assert!(lease.is_held());
    assert!(is_busy(&other, &claim).await);
    // From here on nothing was renewed in time: the keeper was suspended, too.
    place.clock.sleep(LONG);
    assert!(!lease.is_held(), "valid after its term");
    let next = granted(&other, &claim).await;
    assert!(next.raw > lease.raw_token());
    assert_eq!(tokio::time::timeout(LONG / 10, lease.lost()).await.unwrap(), LossCause::Expired);
}

#[tokio::test]
async fn what_was_held_in_another_boot_is_over() {
    let place = Place::new();
    let before = place.open_in("before").await;
    let (held, mut waits) = (place.claim(), place.claim());
    let first = granted(&before, &held).await;
    waits.join = true;
    assert!(is_busy(&before, &waits).await);
    let after = place.open_in("after").await;
    let view = after.look(&held.key).await.unwrap();
    assert!(view.holders.is_empty() && view.waiters.is_empty(), "{view:?}");
    let next = granted(&after, &place.claim()).await;
    assert!(next.raw > first.raw, "{next:?} after {first:?}");
    // One that thinks it is another machine learns that it is not alone, and gets no numbers.
    assert!(matches!(before.renew(&[held.stake()]).await[..], [Renewed::Lost]));
    let another = Claim { key: Key::new("another").unwrap(), ..place.claim() };
    let error = before.claim(&another).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(
        error.to_string().contains("another machine") && error.to_string().contains("\"another\""),
        "{error}"
    );
}

#[tokio::test]
async fn r6_numbers_grow_whatever_becomes_of_the_file() {
    let place = Place::new();
    let (mut last, mut engine) = (0, place.open().await);
    for round in 0..12 {
        let claim = place.claim();
        let raw = granted(&engine, &claim).await.raw;
        assert!(raw > last, "{raw} after {last} in round {round}");
        last = raw;
        assert_eq!(engine.release(&claim.stake()).await.unwrap(), Released::Released);
        match round % 4 {
            0 => place.delete(),
            1 => std::fs::remove_file(place.path()).unwrap(),
            2 => {
                drop(engine);
                place.delete();
                engine = place.open().await;
            }
            _ => {
                let raw = rusqlite::Connection::open(place.path()).unwrap();
                raw.execute_batch("DELETE FROM holds; UPDATE state SET raw = 0").unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_file_that_goes_under_its_clients_is_told_and_made_anew() {
    let place = Place::new();
    let (one, two) = (place.open().await, place.open().await);
    let held = place.claim();
    let first = granted(&one, &held).await;
    place.delete();
    assert!(matches!(one.renew(&[held.stake()]).await[..], [Renewed::Lost]));
    let next = place.claim();
    assert!(granted(&two, &next).await.raw > first.raw);
    // Both see the same new file.
    assert!(is_busy(&one, &held).await);
    assert_eq!(one.release(&next.stake()).await.unwrap(), Released::Released);
}

#[tokio::test]
async fn a_file_that_cannot_be_made_anew_is_an_error_until_it_can() {
    let place = Place::new();
    let engine = place.open().await;
    let away = place.folder.path().with_extension("away");
    std::fs::rename(place.folder.path(), &away).unwrap();
    let error = engine.claim(&place.claim()).await.unwrap_err();
    assert!(error.to_string().starts_with("claim \"a/key\" on sqlite: there is no folder"), "{error}");
    assert!(!error.may_have_taken_effect());
    std::fs::rename(&away, place.folder.path()).unwrap();
    granted(&engine, &place.claim()).await;
}

#[tokio::test]
async fn r16_a_renewal_passes_claims_that_wait() {
    let place = Place::new();
    let engine = Arc::new(place.open().await);
    let held = place.claim();
    granted(&engine, &held).await;
    // Somebody else writes, and takes his time.
    let slow = rusqlite::Connection::open(place.path()).unwrap();
    slow.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut claims = Vec::new();
    for number in 0..2_000 {
        let (engine, key) = (engine.clone(), Key::new(format!("behind/{number}")).unwrap());
        let claim = Claim { key, ..place.claim() };
        claims.push(tokio::spawn(async move { granted(&engine, &claim).await.raw }));
    }
    tokio::task::yield_now().await;
    let renewing = engine.clone();
    let renewal = tokio::spawn(async move {
        let answers = renewing.renew(&[held.stake()]).await;
        assert!(matches!(answers[..], [Renewed::Kept(_)]), "{answers:?}");
        let done: i64 = rusqlite::Connection::open(renewing.path())
            .unwrap()
            .query_row("SELECT count(*) FROM holds WHERE key LIKE 'behind/%'", [], |row| row.get(0))
            .unwrap();
        done
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    slow.execute_batch("ROLLBACK").unwrap();
    let done = renewal.await.unwrap();
    assert!(done < 2_000, "the renewal came after all claims");
    for claim in claims {
        claim.await.unwrap();
    }
}

#[tokio::test]
async fn r3_a_request_that_nobody_could_take_up_is_given_up_for_certain() {
    let place = Place::new();
    let engine = place.open().await;
    let slow = rusqlite::Connection::open(place.path()).unwrap();
    slow.execute_batch("BEGIN IMMEDIATE").unwrap();
    let claim = place.claim();
    let error = engine.claim(&claim).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!error.may_have_taken_effect() && error.to_string().contains("could not be written"), "{error}");
    slow.execute_batch("ROLLBACK").unwrap();
    let other = place.open().await;
    granted(&other, &place.claim()).await;
    assert_eq!(engine.release(&claim.stake()).await.unwrap(), Released::WasLost);
}

#[tokio::test]
async fn r16_a_flight_that_fails_changes_nothing_and_its_members_go_alone() {
    let place = Place::new();
    let engine = Arc::new(place.open().await);
    let slow = rusqlite::Connection::open(place.path()).unwrap();
    let refuse =
        "CREATE TRIGGER no BEFORE INSERT ON holds WHEN NEW.key = 'bad' BEGIN SELECT RAISE(ABORT, 'no'); END";
    slow.execute_batch(refuse).unwrap();
    slow.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut asked = Vec::new();
    for key in ["good", "bad", "well"] {
        let claim = Claim { key: Key::new(key).unwrap(), ..place.claim() };
        let engine = engine.clone();
        asked.push(tokio::spawn(async move { engine.claim(&claim).await }));
    }
    tokio::time::sleep(Duration::from_millis(20)).await;
    slow.execute_batch("ROLLBACK").unwrap();
    let mut answers = Vec::new();
    for task in asked {
        answers.push(task.await.unwrap());
    }
    let [Ok(Answer::Granted(good)), Err(error), Ok(Answer::Granted(well))] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert!(well.raw > good.raw);
    assert!(error.to_string().contains("\"bad\" on sqlite") && !error.may_have_taken_effect(), "{error}");
    let holds: i64 = slow.query_row("SELECT count(*) FROM holds", [], |row| row.get(0)).unwrap();
    assert_eq!(holds, 2);
}

/// The files of clients are gone: nobody's death is seen and nobody is told, so the terms and the refreshes of
/// places decide, as with a store that knows no better.
#[tokio::test]
async fn without_the_clients_files_terms_and_refreshes_decide() {
    let place = Place::new();
    let (one, two) = (place.open().await, place.open().await);
    let (held, waits) = (place.claim(), Claim { join: true, ..place.claim() });
    granted(&one, &held).await;
    let Ok(Answer::Busy(_busy)) = two.claim(&waits).await else { panic!("it is held") };
    std::fs::remove_dir_all(format!("{}.clients", place.path().display())).unwrap();
    assert!(matches!(two.renew(&[waits.stake()]).await[..], [Renewed::Waiting(_)]));
    assert!(matches!(one.renew(&[held.stake()]).await[..], [Renewed::Kept(_)]));
    assert_eq!(one.release(&held.stake()).await.unwrap(), Released::Released);
    assert!(matches!(two.renew(&[waits.stake()]).await[..], [Renewed::Kept(_)]));
    // One who comes now makes the folder anew.
    assert!(is_busy(&place.open().await, &place.claim()).await);
}

#[tokio::test]
async fn a_client_with_nothing_left_removes_its_files_though_a_copy_of_its_liveness_is_open() {
    let place = Place::new();
    let engine = place.open().await;
    let claim = Claim { join: true, ..place.claim() };
    granted(&engine, &claim).await;
    assert!(is_busy(&engine, &Claim { join: true, ..place.claim() }).await);
    let copy = engine.liveness().try_clone_to_owned().unwrap();
    let folder = format!("{}.clients", place.path().display());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2);
    for owner in engine.look(&claim.key).await.unwrap().waiters {
        engine.release(&Claim { owner, ..claim.clone() }.stake()).await.unwrap();
    }
    assert_eq!(engine.release(&claim.stake()).await.unwrap(), Released::Released);
    drop(engine);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    drop(copy);
}

/// Another client finds us dead and removes our files before our claim has had its turn.
#[tokio::test]
async fn a_claim_that_is_queued_when_the_client_ends_is_not_made() {
    let place = Place::new();
    let engine = Arc::new(place.open().await);
    let (folder, queue) = (Folder::of(engine.path()), engine.queue.clone());
    let slow = rusqlite::Connection::open(place.path()).unwrap();
    slow.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (claiming, claim) = (engine.clone(), place.claim());
    let asked = tokio::spawn(async move { claiming.claim(&claim).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    asked.abort();
    assert!(asked.await.unwrap_err().is_cancelled());
    drop(engine);
    let dead = folder.dead();
    assert_eq!(dead.len(), 1);
    dead.into_iter().for_each(|client| folder.remove(client));
    slow.execute_batch("ROLLBACK").unwrap();
    while Arc::strong_count(&queue) > 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let holds: i64 = slow.query_row("SELECT count(*) FROM holds", [], |row| row.get(0)).unwrap();
    assert_eq!(holds, 0, "nobody could tell that it is dead");
}

#[tokio::test]
async fn a_pipe_that_was_made_before_something_failed_is_taken_again() {
    let place = Place::new();
    let engine = place.open().await;
    let (folder, id) = (Folder::of(engine.path()), engine.wakes.me().id);
    drop(folder.make_wakes(id).unwrap());
    let (held, waits) = (place.claim(), Claim { join: true, ..place.claim() });
    granted(&engine, &held).await;
    assert!(is_busy(&engine, &waits).await);
}

#[tokio::test]
async fn a_client_that_is_being_made_is_not_taken_for_dead() {
    let place = Place::new();
    let engine = place.open().await;
    let folder = Folder::of(engine.path());
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (sweeper, stopped) = (folder.clone(), stop.clone());
    let sweeping = std::thread::spawn(move || {
        while !stopped.load(Ordering::SeqCst) {
            sweeper.dead().into_iter().for_each(|client| sweeper.remove(client));
        }
    });
    for _ in 0..2_000 {
        let (id, file) = folder.register(&place.background).unwrap();
        assert!(!folder.is_dead(id));
        assert!(folder.dead().iter().all(|dead| *dead != id));
        drop(file);
    }
    stop.store(true, Ordering::SeqCst);
    sweeping.join().unwrap();
    let owner = Owner::from_id(1);
    granted(&engine, &Claim { owner, ..place.claim() }).await;
    folder.dead().into_iter().for_each(|client| folder.remove(client));
    assert_eq!(std::fs::read_dir(format!("{}.clients", engine.path().display())).unwrap().count(), 1);
}

#[test]
fn a_caller_whose_runtime_has_no_timer_is_answered() {
    let background = Background::threads().unwrap();
    let folder = tempfile::Builder::new().prefix("tenure-sqlite-").tempdir().unwrap();
    let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
    bare.block_on(async {
        let engine = Arc::new(Sqlite::at(folder.path().join("locks.sqlite"), &background).await.unwrap());
        let tenure = Tenure::with_background(engine, background.clone());
        assert!(tenure.look("a/key").await.unwrap().holders.is_empty());
        assert!(tenure.held("", 10).await.unwrap().keys.is_empty());
    });
}
