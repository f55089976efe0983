//! The hidden extended attributes of a mount's root, through which `erofast` talks to a daemon: they
//! need no socket and follow the mount's own permissions.

use std::path::Path;

use rustix::io::Errno;

use crate::error::Error;

/// The live counters; never listed.
pub const STAT_XATTR: &str = "user.erofast.stat";

/// The trace spans; never listed.
pub const TRACE_XATTR: &str = "user.erofast.spans";

/// The kernel's limit for a value, in bytes.
pub(super) const VALUE_BYTES: usize = 64 << 10;

/// Reads one of them.
///
/// # Errors
/// One line: it is no erofast mount, may not be read, or its daemon is dead.
pub(super) fn get(mountpoint: &Path, name: &str) -> Result<Vec<u8>, Error> {
    let mut value = vec![0; VALUE_BYTES];
    let length = rustix::fs::getxattr(mountpoint, name, &mut value[..])
        .map_err(|errno| Error::mountpoint(mountpoint, reason(errno)))?;
    value.truncate(length);
    Ok(value)
}

fn reason(errno: Errno) -> String {
    match errno {
        Errno::NODATA | Errno::OPNOTSUPP => "is not the mount point of an erofast mount".to_owned(),
        Errno::NOTCONN => "its daemon is dead: run erofast umount".to_owned(),
        other => other.to_string(),
    }
}
