//! Tests the crate through its public interface.
//!
//! All tests are in one executable, because every further executable would have to be linked.

mod common;
mod kernel;
mod launch;
mod others;
mod page;
mod run;
