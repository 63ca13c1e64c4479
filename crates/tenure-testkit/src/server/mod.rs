//! Server processes that tests start, pause, resume, kill and restart.
//!
//! A server belongs to one test: it listens on loopback on a port of its own, keeps its data and
//! its log in a temporary folder, and is killed, by its process id, when it is dropped.

mod process;
mod redis;

pub use process::Process;
pub use redis::{Data, RedisOptions, RedisServer};
