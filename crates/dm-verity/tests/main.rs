//! Tests the crate through its public interface.
//!
//! All tests are in one executable, because separate ones would each have to be linked.

mod signatures;
mod trees;
#[path = "common/writer.rs"]
mod writer;
