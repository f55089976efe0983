//! Tests the crate through its public interface.
//!
//! One executable: separate ones would each have to be linked.

mod signatures;
mod trees;
#[path = "common/writer.rs"]
mod writer;
