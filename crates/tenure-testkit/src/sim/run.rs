//! The course of a run: storm, settling, calm, a dead waiter, and the end.

use std::sync::Arc;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tenure::{Key, refresh_interval};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::setup::Setup;
use super::world::{Client, Held, How, World};
use crate::broken::Broken;
use crate::judge::{History, What};

/// How often the store is asked behind the clients' backs.
const AUDIT: Duration = Duration::from_millis(40);
/// How long tasks work when nothing is broken any more.
const CALM: Duration = Duration::from_secs(4);
/// The number of what is no client.
const NOBODY: u32 = u32::MAX;

/// When what begins and ends.
#[derive(Clone, Copy)]
struct Times {
    storm_ends: Instant,
    calm_begins: Instant,
    ends: Instant,
}

impl Times {
    fn of(setup: &Setup) -> Times {
        let storm_ends = Instant::now() + setup.storm;
        let calm_begins = storm_ends + setup.settling();
        Times { storm_ends, calm_begins, ends: calm_begins + CALM }
    }

    fn storm(&self) -> bool {
        Instant::now() < self.storm_ends
    }

    /// The longest pause between two leases of a task. While things settle there is little to learn.
    fn longest_pause_us(&self) -> u64 {
        let settling = !self.storm() && Instant::now() < self.calm_begins;
        if settling { 2_000_000 } else { 150_000 }
    }
}

pub(super) async fn run(seed: u64, setup: Setup, broken: Option<Broken>) -> History {
    let world = Arc::new(World::new(seed, setup.clone(), broken));
    let times = Times::of(&setup);

    let auditor = tokio::spawn(audit(world.clone()));
    let weather = tokio::spawn(blow(world.clone(), seed));
    let mut tasks = Vec::new();
    for client in 0..setup.clients {
        for task in 0..setup.tasks {
            let own_seed = seed.wrapping_mul(7919).wrapping_add(u64::from(client * 64 + task));
            tasks.push(tokio::spawn(work(world.clone(), client, own_seed, times)));
        }
    }
    sleep_until(times.storm_ends).await;
    weather.abort();
    for client in &world.clients {
        client.chaos.calm();
    }
    sleep_until(times.calm_begins).await;
    world.recorder.record_plain(NOBODY, What::Calm);
    let patience = setup.expectations(true).patience + Duration::from_secs(1);
    sleep_until(times.ends).await;
    for mut task in tasks {
        // What does not end in time is an attempt without an end, which the judge finds.
        match timeout(patience, &mut task).await {
            Ok(Err(failed)) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
            Ok(_) => {}
            Err(_) => task.abort(),
        }
    }
    let left = finale(&world, patience).await;
    let at_rest = setup.settling() + setup.longest_term();
    // Twice: with the clients open, nothing may keep anything alive; closed, nothing may be left.
    sleep(at_rest).await;
    take_stock(&world);
    for client in world.clients.iter().filter(|client| Some(client.number) != left) {
        // An error says that something was still under way; the stock shows whether it matters.
        let _ = client.tenure.clone().close().await;
    }
    take_stock(&world);
    auditor.abort();
    world.recorder.history()
}

fn take_stock(world: &World) {
    let census = world.store.census();
    let (holders, waiters, listeners) = (census.holders, census.waiters, census.listeners);
    world.recorder.record_plain(NOBODY, What::End { holders, waiters, listeners });
}

/// Looks at who holds what, from behind, without changing it.
async fn audit(world: Arc<World>) {
    let mut last = vec![(Vec::new(), 0); world.keys.len()];
    loop {
        sleep(AUDIT).await;
        for (key, (seen, age)) in world.keys.iter().zip(&mut last) {
            let (holders, _) = world.store.peek(key);
            *age += 1;
            // What has not changed is said again now and then only.
            if !holders.is_empty() && (*seen != holders || *age >= 10) {
                *age = 0;
                world.recorder.record(NOBODY, key, What::Seen { holders: holders.clone() });
            }
            *seen = holders;
        }
    }
}

/// Cuts clients off for a while, some for longer than their terms.
async fn blow(world: Arc<World>, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed ^ 0x0b10_3000);
    let most = (world.setup.term * 3).min(Duration::from_secs(6));
    if !world.setup.faults.partitions {
        return;
    }
    loop {
        sleep(Duration::from_millis(random.random_range(200..3_000))).await;
        let client = random.random_range(0..world.clients.len());
        let span = most.mul_f64(random.random_range(0.0..1.0));
        world.clients[client].chaos.cut_off(span);
    }
}

/// One task: asks, works, writes, gives back, until time is over.
async fn work(world: Arc<World>, client: u32, seed: u64, times: Times) {
    let mut random = StdRng::seed_from_u64(seed);
    let client = &world.clients[client as usize];
    while Instant::now() < times.ends {
        sleep(Duration::from_micros(random.random_range(0..times.longest_pause_us()))).await;
        let key = &world.keys[random.random_range(0..world.keys.len())];
        let how = How::draw(&mut random);
        if let Some(held) = world.acquire(client, key, how).await {
            use_lease(&world.setup, held, &mut random, times.storm()).await;
        }
    }
}

async fn use_lease(setup: &Setup, held: Held<'_>, random: &mut StdRng, stormy: bool) {
    // Long enough that some are lost while they are used, which is what validity is about.
    let long = stormy && random.random_bool(0.3);
    let most = if long { (setup.term * 2).min(Duration::from_secs(5)) } else { Duration::from_millis(60) };
    for _ in 0..random.random_range(1..=3) {
        let span = most.mul_f64(random.random_range(0.0..1.0));
        let extend = stormy && random.random_bool(0.1);
        let kept = match extend {
            true => held.extend(setup.term.mul_f64(random.random_range(0.5..2.0))).await,
            false => held.work(span).await,
        };
        if !kept {
            // A holder that has not listened: writes late, by its old token.
            if random.random_bool(0.5) {
                sleep(setup.term.mul_f64(random.random_range(0.0..1.0))).await;
                held.write();
            }
            break;
        }
        if random.random_bool(0.7) {
            held.write();
        }
    }
    match random.random_bool(0.7) {
        true => held.release().await,
        false => held.drop_it(),
    }
}

/// A waiter dies at the head of a queue, and the next one must be served nevertheless. Says who died.
async fn finale(world: &Arc<World>, patience: Duration) -> Option<u32> {
    let [holder, victim, next, ..] = world.clients.as_slice() else { return None };
    let key = Key::new("finale").ok()?;
    let held = world.acquire(holder, &key, How::Within(patience)).await?;
    let pause = refresh_interval(world.setup.term) / 4;
    let dying = wait_in_task(world, victim, &key);
    held.work(pause).await;
    let waiting = wait_in_task(world, next, &key);
    held.work(pause).await;
    victim.chaos.die();
    world.recorder.record_plain(victim.number, What::Died);
    held.work(pause).await;
    held.release().await;
    let mut waiting = waiting;
    if timeout(patience, &mut waiting).await.is_err() {
        waiting.abort();
    }
    dying.abort();
    Some(victim.number)
}

fn wait_in_task(world: &Arc<World>, client: &Client, key: &Key) -> tokio::task::JoinHandle<()> {
    let (world, number, key) = (world.clone(), client.number as usize, key.clone());
    tokio::spawn(async move {
        let held = world.acquire(&world.clients[number], &key, How::Wait).await;
        if let Some(held) = held {
            held.work(Duration::from_millis(5)).await;
            held.release().await;
        }
    })
}
