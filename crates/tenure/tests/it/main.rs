//! The core over the memory engine, on a paused clock.

mod from_env;
mod lease;
mod metrics;
mod mutex;
mod retry;
mod support;
mod url;
