//! Tests the crate through its public interface.
//!
//! One executable: separate ones would each have to be linked.

mod bounds;
mod findings;
