//! The version of the program that serves, for the live counters.

use std::sync::OnceLock;

/// Set once, when the program starts.
static VERSION: OnceLock<&'static str> = OnceLock::new();

/// Sets the version of the program; by default it is that of this library.
pub fn set_version(version: &'static str) {
    // A second call changes nothing.
    let _ = VERSION.set(version);
}

pub(crate) fn version() -> &'static str {
    VERSION.get().copied().unwrap_or(env!("CARGO_PKG_VERSION"))
}
