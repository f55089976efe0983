//! The crate through its public interface.
//!
//! One executable: each would be linked on its own.

mod signatures;
mod trees;
#[path = "common/writer.rs"]
mod writer;
