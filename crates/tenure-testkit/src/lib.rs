//! Test kit.

pub mod broken;
pub mod chaos;
pub mod judge;
pub mod proxy;
pub mod raw;
pub mod server;
pub mod sim;
