//! The test kit's own tests.

mod proxy;
mod servers;
