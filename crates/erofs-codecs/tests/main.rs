//! The crate through its public interface.
//!
//! One executable: each would be linked on its own.

mod common;
mod hostile;
mod round_trip;
