//! Five buyers want the last unit. The stock is read, checked, and written back in separate steps,
//! as many shops do; the lock makes one step of them.
//!
//! `cargo run -p tenure --features redis --example last_unit -- redis://127.0.0.1:6379`

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::{Result, Tenure};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<()> {
    let tenure = tenure::connect(engine_url()).await?;
    let stock = Arc::new(AtomicU32::new(1));

    let mut buyers = JoinSet::new();
    for buyer in 1..=5 {
        buyers.spawn(buy(tenure.clone(), buyer, stock.clone()));
    }
    let mut sold = 0;
    for bought in buyers.join_all().await {
        sold += u32::from(bought?);
    }
    println!("sold {sold}, left {}", stock.load(Ordering::Relaxed));

    tenure.close().await
}

/// Whether this buyer got one.
async fn buy(tenure: Tenure, buyer: u32, stock: Arc<AtomicU32>) -> Result<bool> {
    let lease = tenure.mutex("stock/teapot").ttl(Duration::from_secs(5)).class("stock").acquire().await?;

    let left = stock.load(Ordering::Relaxed);
    // Looking up the price takes a while. Without the lock, all five would see one unit left.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let bought = left > 0;
    if bought {
        stock.store(left - 1, Ordering::Relaxed);
    }

    let outcome = if bought { "bought it" } else { "sold out" };
    println!("buyer {buyer}: {outcome} (token {})", lease.token());
    lease.release().await?;
    Ok(bought)
}

fn engine_url() -> String {
    let named = std::env::args().nth(1).or_else(|| std::env::var("TENURE_URL").ok());
    named.unwrap_or_else(|| "memory:".to_owned())
}
