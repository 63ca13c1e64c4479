//! The tests of the kit itself.

mod chaos;
mod sim;
