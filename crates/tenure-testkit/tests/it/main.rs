//! The test kit's own tests.

#[path = "../contenders/mod.rs"]
mod contenders;
mod cross_process;
mod matrix;
mod proxy;
mod servers;
