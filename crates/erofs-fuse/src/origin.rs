//! The user that started this process. A server of root becomes another one itself.

use std::os::unix::fs::MetadataExt;
use std::sync::LazyLock;

use rustix::process::{Uid, getuid};

struct Origin {
    user: Uid,
    in_first_namespace: bool,
}

/// Read at the start: later neither a non-dumpable process nor the sandbox may.
static ORIGIN: LazyLock<Origin> = LazyLock::new(|| Origin {
    user: getuid(),
    // Without /proc the system is just starting.
    in_first_namespace: std::fs::metadata("/proc/self/ns/user")
        .map_or(true, |namespace| namespace.ino() == FIRST),
});

/// PROC_USER_INIT_INO of the kernel.
const FIRST: u64 = 0xEFFF_FFFD;

/// To be called with all rights.
pub(crate) fn remember() {
    LazyLock::force(&ORIGIN);
}

/// The user that mounted.
pub(crate) fn user() -> Uid {
    ORIGIN.user
}

/// Whether that is a user of the system's first user namespace.
pub(crate) fn in_first_namespace() -> bool {
    ORIGIN.in_first_namespace
}
