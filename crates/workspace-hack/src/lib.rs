//! Empty: the crate exists only for the features in its Cargo.toml.
#![forbid(unsafe_code)]
