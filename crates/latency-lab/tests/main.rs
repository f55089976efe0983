//! Tests the crate through its public interface.
//!
//! One executable: separate ones would each have to be linked.

mod common;
mod kernel;
mod launch;
mod others;
mod page;
mod run;
