//! Tests the crate through its public interface.
//!
//! All tests are in one executable, because separate ones would each have to be linked.

mod common;
mod kernel;
mod launch;
mod others;
mod page;
mod run;
