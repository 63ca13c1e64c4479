//! The command `tenure`, tried as its users run it, on a real Redis server.

mod bench;
mod codes;
mod examples;
mod guard;
mod hold;
mod holding;
mod input;
mod lost;
mod piped;
mod release;
mod signals;
mod support;
mod terminal;
mod texts;
mod waiting;
mod who;
