//! Steps on the way to a ring or a channel that tests make fail: the daemon of a test is a process
//! of its own, so the step is named in its environment. Without the feature `fail-points` nothing
//! fails.

use std::io;

/// Names the step that fails: `setup`, `memory`, `offer`, `register`, `cpu` or `clone`.
#[cfg(feature = "fail-points")]
const STEP: &str = "FUSE_TRANSPORT_FAILS";

/// Whether this step is to fail.
#[cfg(feature = "fail-points")]
pub(crate) fn fails(step: &str) -> bool {
    std::env::var_os(STEP).is_some_and(|wanted| wanted == step)
}

#[cfg(not(feature = "fail-points"))]
pub(crate) fn fails(_: &str) -> bool {
    false
}

/// ENOMEM where this step is to fail.
pub(crate) fn check(step: &str) -> io::Result<()> {
    match fails(step) {
        true => Err(rustix::io::Errno::NOMEM.into()),
        false => Ok(()),
    }
}
