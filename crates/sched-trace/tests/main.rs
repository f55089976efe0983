//! Tests the crate through its public interface.
//!
//! All tests are in one executable, because separate executables would each have to be linked.

mod beside;
mod donation;
mod findings;
mod losses;
mod oracle;
mod other_tools;
mod perf_text;
mod second_program;
