//! The erofast command.
#![forbid(unsafe_code)]
fn main() {}
