//! The user that started this process. A server that root started changes to another user
//! afterwards.

use std::sync::LazyLock;

use confinement::user;
use rustix::process::{Uid, getuid};

struct Origin {
    user: Uid,
    in_first_namespace: bool,
}

/// Determined at start-up, because a non-dumpable or sandboxed process may not read its own
/// namespaces in `/proc`.
static ORIGIN: LazyLock<Origin> = LazyLock::new(|| Origin {
    user: getuid(),
    in_first_namespace: user::in_first_namespace(),
});

/// Remembers the user. Must be called while the process has all its rights.
pub(crate) fn remember() {
    LazyLock::force(&ORIGIN);
}

/// The user that mounted.
pub(crate) fn user() -> Uid {
    ORIGIN.user
}

/// Whether that user belongs to the system's initial user namespace.
pub(crate) fn in_first_namespace() -> bool {
    ORIGIN.in_first_namespace
}
