//! The crate through its public interface.
//!
//! One executable: each would be linked on its own.

mod common;
mod kernel;
mod launch;
mod others;
mod page;
mod run;
