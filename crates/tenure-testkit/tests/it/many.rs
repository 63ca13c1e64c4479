//! Many leases of one client.

use std::time::{Duration, Instant};

use tenure::{Lease, LossCause, Moment};
use tenure_testkit::server::{RedisOptions, RedisServer};

const LEASES: usize = 10_000;
const TASKS: usize = 50;
const TERM: Duration = Duration::from_secs(3);

/// R2: ten thousand leases are renewed, term after term, while one of them is lost, and that one's
/// holder is told in time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r2_ten_thousand_leases_are_kept_while_one_is_lost() {
    let server = RedisServer::start(RedisOptions { append_only: false, ..RedisOptions::default() }).unwrap();
    let tenure = tenure::connect(format!("redis://{}", server.address())).await.unwrap();
    let mut tasks = Vec::new();
    for task in 0..TASKS {
        let tenure = tenure.clone();
        tasks.push(tokio::spawn(async move {
            let mut leases = Vec::new();
            for number in (task..LEASES).step_by(TASKS) {
                leases.push(tenure.mutex(format!("many/{number}")).ttl(TERM).acquire().await.unwrap());
            }
            leases
        }));
    }
    let mut leases: Vec<Lease> = Vec::new();
    for task in tasks {
        leases.extend(task.await.unwrap());
    }
    let lost = leases.swap_remove(LEASES / 2);
    let mut raw = server.raw(0).unwrap();
    assert_eq!(raw.demand(&["DEL", lost.key().as_str()]).unwrap().int(), Some(1));
    let cause = tokio::time::timeout(TERM, lost.lost()).await.expect("told within a term");
    assert_eq!(cause, LossCause::Taken);
    assert!(Moment::now() < lost.valid_until(), "told after validity ended");
    // All others, for two terms more: nobody was told, and each hold is there.
    let until = Instant::now() + TERM * 2;
    while Instant::now() < until {
        let gone: Vec<_> = leases.iter().filter(|lease| !lease.is_held()).map(|lease| lease.key()).collect();
        assert!(gone.is_empty(), "{} were lost, the first is {}", gone.len(), gone[0]);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The counter and its run id are there, too.
    let there = raw.demand(&["DBSIZE"]).unwrap().int().unwrap();
    assert_eq!(usize::try_from(there).unwrap(), LEASES - 1 + 2);
    tenure.close().await.unwrap();
    assert_eq!(raw.demand(&["DBSIZE"]).unwrap().int(), Some(2), "close left something behind");
}
