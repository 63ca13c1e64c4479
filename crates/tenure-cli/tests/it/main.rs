//! The command `tenure`, tried as its users run it, on a real Redis server.

mod bench;
mod codes;
mod examples;
mod guard;
mod holding;
mod input;
mod lost;
mod signals;
mod support;
mod terminal;
mod waiting;
