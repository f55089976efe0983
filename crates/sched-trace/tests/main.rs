//! The crate through its public interface.
//!
//! One executable: each would be linked on its own.

mod beside;
mod findings;
mod losses;
mod oracle;
mod other_tools;
mod perf_text;
mod second_program;
