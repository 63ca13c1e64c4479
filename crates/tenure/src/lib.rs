//! Locks with fencing tokens on the store you already run.

pub mod engine;

mod background;
mod error;
mod key;
mod promises;
mod time;

pub use background::{Background, Clock};
pub use error::{Error, ErrorKind, Result};
pub use key::{Key, MAX_KEY_BYTES, Owner, Token};
pub use promises::{Promises, Wakes};
pub use time::{DEFAULT_TERM, Moment, drift, pushed_term, refresh_interval};
