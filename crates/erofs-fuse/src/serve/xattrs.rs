//! The hidden extended attributes of a mount's root, through which `erofast` talks to a daemon:
//! they need no socket and follow the mount's own permissions. Where ENOSYS made the kernel stop
//! asking for attributes, the same values are read by a [query](super::queries).

use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;

use super::queries;
use crate::error::Error;
use crate::helper::{answer_within, pid_of_server};
use crate::origin;

/// The live counters; never listed.
pub const STAT_XATTR: &str = "user.erofast.stat";

/// The trace spans; never listed.
pub const TRACE_XATTR: &str = "user.erofast.spans";

/// Numbers of the queries for the same values.
pub(super) const STAT_QUERY: u8 = 1;
pub(super) const TRACE_QUERY: u8 = 2;

/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// The kernel's limit for a value, in bytes.
pub(super) const VALUE_BYTES: usize = 64 << 10;

/// Reads one of them.
///
/// # Errors
/// One line: it is no erofast mount, may not be read, or its server is dead or does not answer.
pub(super) fn get(mountpoint: &Path, name: &'static str) -> Result<Vec<u8>, Error> {
    let place = mountpoint.to_owned();
    let read = answer_within(ANSWER, move || read(&place, name));
    let why = match read {
        Some(Ok(value)) => return Ok(value),
        Some(Err(errno)) => reason(errno),
        None => match pid_of_server(mountpoint) {
            Some(pid) => format!("its server (process {pid}) does not answer"),
            None => "its server does not answer".to_owned(),
        },
    };
    Err(Error::mountpoint(mountpoint, why))
}

fn read(mountpoint: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; VALUE_BYTES];
    let number = if name == STAT_XATTR {
        STAT_QUERY
    } else {
        TRACE_QUERY
    };
    match rustix::fs::getxattr(mountpoint, name, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            Ok(value)
        }
        Err(Errno::OPNOTSUPP) => queries::get(mountpoint, number),
        Err(errno) => Err(errno),
    }
}

fn reason(errno: Errno) -> String {
    match errno {
        Errno::NODATA | Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOTDIR => {
            "is not the mount point of an erofast mount".to_owned()
        }
        Errno::AGAIN => "its daemon starts or ends at this moment".to_owned(),
        Errno::NOTCONN => "its daemon is dead: run erofast umount".to_owned(),
        other => other.to_string(),
    }
}

/// Whether the names of `trusted.*` are listed for a caller. The kernel guards their values, for
/// root of another user namespace too; overlayfs there cannot copy a file with a name that has no
/// value.
pub(super) fn lists_trusted(uid: u32) -> bool {
    uid == 0 && origin::in_first_namespace()
}

/// Whether an attribute of this name can exist: the kernel's EROFS knows these namespaces and no
/// other.
pub(super) fn is_in_a_namespace(name: &[u8]) -> bool {
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let acls: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];
    prefixes.iter().any(|prefix| name.starts_with(prefix)) || acls.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::is_in_a_namespace;

    #[test]
    fn attributes_of_other_namespaces_are_not_supported() {
        for name in [
            "user.a",
            "trusted.overlay.opaque",
            "system.posix_acl_access",
        ] {
            assert!(is_in_a_namespace(name.as_bytes()), "{name}");
        }
        for name in ["system.nfs4_acl", "btrfs.compression", "user", ""] {
            assert!(!is_in_a_namespace(name.as_bytes()), "{name}");
        }
    }
}
