//! Extended attributes: which names can exist, and which callers see them listed.

use crate::origin;

/// Whether names in `trusted.*` are listed for a caller. Even root in another user namespace cannot
/// read their values, and an overlayfs mounted there fails to copy a file that lists an attribute
/// whose value it cannot read.
pub(crate) fn lists_trusted(uid: u32) -> bool {
    uid == 0 && origin::in_first_namespace()
}

/// Whether an attribute of this name can exist: the kernel's EROFS knows only these namespaces.
pub(crate) fn is_in_a_namespace(name: &[u8]) -> bool {
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    prefixes.iter().any(|prefix| name.starts_with(prefix)) || is_acl(name)
}

/// Whether an attribute of this name is a POSIX ACL. With `noacl` there are none, as in the
/// kernel's EROFS.
pub(crate) fn is_acl(name: &[u8]) -> bool {
    matches!(
        name,
        b"system.posix_acl_access" | b"system.posix_acl_default"
    )
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
