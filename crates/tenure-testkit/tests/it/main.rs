//! The tests of the kit itself.

mod chaos;
mod clock;
#[path = "../contenders/mod.rs"]
mod contenders;
mod cross_process;
mod many;
mod matrix;
mod proxy;
mod servers;
mod sim;
mod sqlite;
mod torn;
