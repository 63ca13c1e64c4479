//! Test kit.

pub mod harness;
pub mod proxy;
pub mod raw;
pub mod register;
pub mod server;
pub mod suite;
