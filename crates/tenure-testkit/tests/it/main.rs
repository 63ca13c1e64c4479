//! The tests of the kit itself.

mod chaos;
#[path = "../contenders/mod.rs"]
mod contenders;
mod cross_process;
mod matrix;
mod proxy;
mod servers;
mod sim;
