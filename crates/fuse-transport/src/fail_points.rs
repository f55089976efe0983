//! Lets tests make a step in creating a ring or a channel fail. The daemon of a test is a separate
//! process, so an environment variable names the step. Without the feature `fail-points` nothing
//! fails.

use rustix::io::Errno;
use std::io;

/// Environment variable that names the step that fails: `setup`, `memory`, `offer`, `register`,
/// `cpu` or `clone`; with `read` or `enter`, every second call fails.
#[cfg(feature = "fail-points")]
pub const FAIL_STEP: &str = "FUSE_TRANSPORT_FAILS";

/// Whether this step should fail.
#[cfg(feature = "fail-points")]
pub(crate) fn fails(step: &str) -> bool {
    // Looked up once, so that serving threads share nothing that is written.
    static WANTED: std::sync::OnceLock<Option<std::ffi::OsString>> = std::sync::OnceLock::new();
    let wanted = WANTED.get_or_init(|| std::env::var_os(FAIL_STEP));
    wanted.as_ref().is_some_and(|wanted| wanted == step)
}

#[cfg(not(feature = "fail-points"))]
pub(crate) fn fails(_: &str) -> bool {
    false
}

/// ENOMEM if this step should fail.
pub(crate) fn check(step: &str) -> io::Result<()> {
    match fails(step) {
        true => Err(Errno::NOMEM.into()),
        false => Ok(()),
    }
}

/// ENOMEM for every second call of a thread, if this step should fail.
pub(crate) fn check_now(step: &str) -> Result<(), Errno> {
    thread_local!(static CALLS: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
    if !fails(step) {
        return Ok(());
    }
    CALLS.set(CALLS.get() + 1);
    match CALLS.get() % 2 {
        0 => Ok(()),
        _ => Err(Errno::NOMEM),
    }
}
