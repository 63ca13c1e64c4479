//! Test kit.

pub mod broken;
pub mod chaos;
pub mod harness;
pub mod judge;
pub mod proxy;
pub mod raw;
pub mod register;
pub mod server;
pub mod sim;
pub mod suite;
