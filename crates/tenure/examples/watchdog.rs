//! Work that takes longer than the term. The client prolongs the lease while the work runs; when
//! that fails, the work is stopped before somebody else can hold the lock.
//!
//! `cargo run -p tenure --features redis --example watchdog -- redis://127.0.0.1:6379`

use std::time::Duration;

use tenure::engine::{Mode, Stake};
use tenure::{Lease, Result, Tenure};

const TERM: Duration = Duration::from_millis(600);

#[tokio::main]
async fn main() -> Result<()> {
    let tenure = tenure::connect(engine_url()).await?;
    let lock = tenure.mutex("reports/nightly").ttl(TERM).class("reports");

    let lease = lock.acquire().await?;
    let pages = lease.run(write_report(3)).await?;
    println!("wrote {pages} pages in three terms; still held: {}", lease.is_held());
    lease.release().await?;

    // Now somebody removes the lock while we work. The next renewal finds out.
    let lease = lock.acquire().await?;
    let (outcome, ()) = tokio::join!(lease.run(write_report(30)), remove(&tenure, &lease));
    match outcome {
        Ok(_) => println!("the loss went unnoticed"),
        Err(error) => println!("stopped: {error}"),
    }
    println!("still held: {}", lease.is_held());
    println!("released: {:?}", lease.release().await?);

    tenure.close().await
}

/// Each page takes a whole term.
async fn write_report(pages: u32) -> u32 {
    for page in 1..=pages {
        tokio::time::sleep(TERM).await;
        println!("page {page}");
    }
    pages
}

/// What an operator does who deletes the key: the engine forgets the hold, and nobody tells us.
async fn remove(tenure: &Tenure, lease: &Lease) {
    tokio::time::sleep(TERM / 2).await;
    let (key, owner) = (lease.key().clone(), lease.owner());
    let stake = Stake { key, owner, mode: Mode::Exclusive, term: TERM, raw: Some(lease.raw_token()) };
    match tenure.engine().release(&stake).await {
        Ok(_) => println!("an operator removed the lock"),
        Err(error) => println!("the operator failed: {error}"),
    }
}

fn engine_url() -> String {
    let named = std::env::args().nth(1).or_else(|| std::env::var("TENURE_URL").ok());
    named.unwrap_or_else(|| "memory:".to_owned())
}
