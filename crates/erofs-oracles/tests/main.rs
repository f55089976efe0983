//! Tests the crate through its public interface.
//!
//! All tests are in one executable, because separate executables would each have to be linked.

mod bounds;
mod findings;
