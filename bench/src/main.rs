//! tenure-bench.
fn main() {}
