//! Locks with fencing tokens on the store you already run.

pub mod engine;

mod background;
mod client;
mod error;
mod hold;
mod keeper;
mod key;
mod lease;
mod line;
mod mutex;
mod observe;
mod place;
mod promises;
mod stay;
mod time;
mod work;

pub use background::{Background, Clock};
pub use client::{Tenure, connect, connect_beside};
pub use engine::Released;
pub use error::{Error, ErrorKind, Result};
pub use hold::LossCause;
pub use key::{Key, MAX_KEY_BYTES, Owner, Token};
pub use lease::Lease;
pub use mutex::Mutex;
pub use promises::{Promises, Wakes};
pub use time::{DEFAULT_TERM, Moment, drift, pushed_term, refresh_interval};

/// The example of the README is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
