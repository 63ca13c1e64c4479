//! What an engine of `tenure` is tested with, also for authors of engines elsewhere.
//!
//! - [`suite`]: the cases that every engine must pass, over a [`harness`] that starts it, breaks it, and
//!   asks it for the truth without its own code;
//! - [`server`], [`proxy`], [`raw`]: server processes, a line that can be cut, held and delayed, and a
//!   client without our code;
//! - [`sim`]: the real core on a paused clock over the memory engine behind [`chaos`], seeded faults;
//! - [`judge`]: reads histories of both, one invariant per file;
//! - [`broken`]: engines with one deliberate mistake each, which must be caught;
//! - [`register`]: a resource that is guarded by the token.

pub mod broken;
pub mod chaos;
pub mod harness;
pub mod judge;
pub mod proxy;
pub mod raw;
pub mod register;
pub mod server;
pub mod sim;
pub mod suite;
