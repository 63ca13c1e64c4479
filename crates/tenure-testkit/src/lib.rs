//! Test kit.

pub mod proxy;
pub mod raw;
pub mod server;
