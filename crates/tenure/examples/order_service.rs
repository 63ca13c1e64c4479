//! A service that processes an order alone: waits up to 10 s for its turn, works, and gives the
//! lock back whatever happens.
//!
//! `cargo run -p tenure --features redis --example order_service -- redis://127.0.0.1:6379`

use std::time::Duration;

use tenure::{ErrorKind, Lease, Tenure};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let tenure = tenure::connect(engine_url()).await?;

    // An order that goes well, one that fails, and the failed one again: the failure left no lock.
    process(&tenure, 42, true).await;
    process(&tenure, 43, false).await;
    process(&tenure, 43, true).await;

    // Somebody else works on an order for longer than we are willing to wait.
    let other = tenure.mutex("orders/44").acquire().await?;
    let lock = tenure.mutex("orders/44");
    match lock.acquire_within(Duration::from_millis(200)).await {
        Err(error) if error.kind() == ErrorKind::TimedOut => println!("order 44: busy, try later"),
        Err(error) => return Err(error.into()),
        Ok(_) => return Err("two holders at once".into()),
    }
    other.release().await?;

    tenure.close().await?;
    Ok(())
}

async fn process(tenure: &Tenure, order: u32, payable: bool) {
    match try_to_process(tenure, order, payable).await {
        Ok(()) => println!("order {order}: done"),
        Err(error) => println!("order {order}: {error}"),
    }
}

async fn try_to_process(
    tenure: &Tenure,
    order: u32,
    payable: bool,
) -> Result<(), Box<dyn std::error::Error>> {
    let lock = tenure.mutex(format!("orders/{order}")).ttl(Duration::from_secs(30)).class("orders");
    let lease = lock.acquire_within(Duration::from_secs(10)).await?;
    // The first question mark is for a lease that was lost, the second for work that failed. In both
    // cases the lease is dropped on the way out, which gives the lock back in the background.
    lease.run(charge(&lease, payable)).await??;
    // Where all went well, wait for the answer: it says whether the lock was ours until now.
    lease.release().await?;
    Ok(())
}

/// The work. The token goes with every write, so that the database can refuse a late one.
async fn charge(lease: &Lease, payable: bool) -> Result<(), String> {
    println!("{}: charging with token {}", lease.key(), lease.token());
    tokio::time::sleep(Duration::from_millis(50)).await;
    if payable { Ok(()) } else { Err("the card was declined".to_owned()) }
}

fn engine_url() -> String {
    let named = std::env::args().nth(1).or_else(|| std::env::var("TENURE_URL").ok());
    named.unwrap_or_else(|| "memory:".to_owned())
}
