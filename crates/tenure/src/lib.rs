//! Locks with fencing tokens on the store you already run.
//!
//! A lock is granted for a *term* and renewed while it is held: what you hold is a [`Lease`]. Each grant
//! has a number, the fencing [`Token`], that is larger than all before it. The holder is told when the
//! lease can no longer be proved, before somebody else can have the lock.
//!
//! ```
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> tenure::Result<()> {
//! // One client for a process. `memory:` excludes nobody else; "redis://127.0.0.1:6379" does.
//! let tenure = tenure::connect("memory:").await?;
//! let lock = tenure.mutex("orders/42").ttl(Duration::from_secs(30));
//!
//! let lease = lock.acquire_within(Duration::from_secs(10)).await?;
//! let token = lease.token(); // goes with every write, so that a late one can be refused
//! let paid = lease.run(async move { token.get() > 0 }).await?; // dropped if the lease is lost
//! lease.release().await?; // says whether the lease was ours until now
//! # assert!(paid);
//!
//! tenure.close().await
//! # }
//! ```
//!
//! # Which one, and when none
//!
//! | you want | take |
//! | --- | --- |
//! | wait as long as it takes | [`Mutex::acquire`] |
//! | wait for a while | [`Mutex::acquire_within`], which fails with [`ErrorKind::TimedOut`] |
//! | do it only if nobody else does | [`Mutex::try_acquire`], which answers `None` |
//! | try now and then, and outlast a short outage | [`Mutex::acquire_retrying`], with a [`Retry`] |
//! | stop when the lease is lost | [`Lease::run`], or [`Lease::lost`] in a `select!` of your own |
//! | no harm from a holder that stood still | [`Lease::token`], and a resource that refuses a smaller one |
//!
//! Take none where the store can decide by itself: a unique constraint, one `UPDATE … WHERE`, a
//! transaction. Inside one process take `tokio::sync::Mutex`. A lock without a check of the token at
//! the resource saves work; it does not prevent harm.
//!
//! # Engines
//!
//! | URL | engine | feature |
//! | --- | --- | --- |
//! | `memory:` | [`engine::memory`]: this client only, for tests and examples | always there |
//! | `redis://` `rediss://` `redis+unix:` | `engine::redis`: one Redis server, plain, over TLS, or over its socket | `redis` (off unless said) |
//! | `sqlite:PATH` | `engine::sqlite`: a file, shared by the processes of one machine | `sqlite` (off unless said) |
//!
//! What an engine guarantees is data: [`Tenure::promises`].
//!
//! # What holds everywhere
//!
//! - **Time.** Durations have milliseconds, rounded up; [`Moment`]s are those of `CLOCK_BOOTTIME`, which
//!   runs on during suspend. No wall clock decides anything. A term is 30 s unless said.
//! - **Validity** counts from before the request was sent whose answer proves it, less 2 % of the term and
//!   2 ms ([`drift`]).
//! - **Order.** First come, first served among the tasks of a client, and among clients where
//!   [`Promises::fifo`] says so.
//! - **Cancelling.** Each future may be dropped at any time; its documentation says what that costs. A
//!   request that is on the wire runs to its end in the background, and what it got is given back.
//! - **Errors** name the operation, the key, the engine, what happened, whether it may have taken effect,
//!   and what to do. That somebody else holds a lock is no error.
//! - **Runtime.** Call it in a tokio runtime with time enabled. A client has two threads of its own, one for
//!   requests and one for renewals, so a blocked task of yours costs no lease. [`connect_beside`] carries
//!   requests in your runtime instead, which is faster on a current-thread one; renewals stay apart.
//!
//! More is in the repository: `docs/guide` to learn it, `docs/engines` for what each engine promises and
//! how it fails, `docs/reference.md` for bounds and defaults, `DESIGN.md` for the rules (R1 to R17) and why.

pub mod engine;

mod background;
mod client;
mod error;
mod from_env;
mod hold;
mod inspect;
mod keeper;
mod key;
mod lease;
mod line;
mod mutex;
mod observe;
mod place;
mod promises;
mod retry;
mod stay;
mod time;
mod work;

pub use background::{Background, Clock};
pub use client::{Tenure, connect, connect_beside, connect_retrying};
pub use engine::Released;
pub use error::{Error, ErrorKind, Result};
pub use from_env::connect_from_env;
pub use hold::LossCause;
pub use inspect::Listing;
pub use key::{Key, MAX_KEY_BYTES, Owner, Token};
pub use lease::Lease;
pub use mutex::{MAX_VALUE_BYTES, Mutex};
pub use promises::{Promises, Wakes};
pub use retry::Retry;
pub use time::{DEFAULT_TERM, Moment, drift, pushed_term, refresh_interval};

/// The example of the README is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/term.md")]
#[doc = include_str!("../../../docs/guide/shutdown.md")]
struct Guide;

/// The examples of the engine's page.
#[cfg(all(doctest, feature = "redis"))]
#[doc = include_str!("../../../docs/engines/redis.md")]
struct RedisPage;
