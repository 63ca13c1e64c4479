//! The command `tenure`.
fn main() {}
