//! The crate through its public interface.
//!
//! One executable: each would be linked on its own.

mod bounds;
mod findings;
