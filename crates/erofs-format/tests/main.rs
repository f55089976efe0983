//! The crate through its public interface.
//!
//! One executable: each would be linked on its own.

mod bad;
mod common;
mod images;
