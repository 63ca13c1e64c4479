//! The core over the memory engine, on a paused clock.

mod lease;
mod metrics;
mod mutex;
mod support;
mod url;
