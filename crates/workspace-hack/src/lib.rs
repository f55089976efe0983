//! Empty: the crate exists for the features in its Cargo.toml.
#![forbid(unsafe_code)]
