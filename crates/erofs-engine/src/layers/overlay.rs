//! The marks by which a layer hides entries below it; readers never see these marks.
//!
//! Whiteouts, opaque directories, redirects and escaped attributes are described in the kernel's
//! Documentation/filesystems/overlayfs.rst, and names that begin with `.wh.` in the section on
//! whiteouts of the OCI image layer specification.

use std::borrow::Cow;

use erofs_format::{DeviceNumber, FileType, Inode};

/// The beginning of a whiteout's name in a tar archive.
pub(crate) const TAR_PREFIX: &[u8] = b".wh.";

/// The file in a tar archive that makes its directory opaque.
pub(crate) const TAR_OPAQUE: &[u8] = b".wh..wh..opq";

/// The length of the longest name in bytes.
const LONGEST_NAME: usize = 255;

/// Prefixes of overlayfs's own attributes: for mounts made by root, and by users.
const ATTRIBUTES: [&[u8]; 2] = [b"trusted.overlay.", b"user.overlay."];

/// The string that follows one of [`ATTRIBUTES`] in the name of an attribute that is meant for an
/// overlayfs on top of this one.
const ESCAPED: &[u8] = b"overlay.";

/// Marks a directory that hides the directories of its name in the layers below.
pub(crate) const OPAQUE: &[u8] = b"opaque";

/// Marks an empty file as a whiteout.
pub(crate) const WHITEOUT: &[u8] = b"whiteout";

/// The path of a directory in the layers below, if it has a different path there. As in overlayfs,
/// only root's attribute is followed.
pub(crate) const REDIRECT: &[u8] = b"trusted.overlay.redirect";

/// Marks a file whose content is in a layer below.
pub(crate) const METACOPY: &[u8] = b"metacopy";

/// Marks a directory that an archive only implies, in images whose archive `erofast-fetch` has
/// rewritten. The value [`EXTENDED`] means that the archive states the directory later, and only
/// extended attributes come from below.
pub(crate) const IMPLIED: &[u8] = b"trusted.overlay.erofast.implied";

/// A value of [`IMPLIED`]: the archive states the directory later.
const EXTENDED: &[u8] = b"x";

/// A value of [`IMPLIED`]: when this directory was created, its parent was also only implied, and
/// may determine the group.
pub(crate) const MADE_IN_IMPLIED: &[u8] = b"p";

/// Marks the root of an image whose archive has been rewritten. It says that names that begin with
/// `.wh.` are ordinary names in this image.
pub(crate) const REWRITTEN: &[u8] = b"trusted.overlay.erofast.rewritten";

/// Prefix of the attributes that rewriting adds.
const REWRITING: &[u8] = b"trusted.overlay.erofast.";

/// Which attributes of a directory come from the layers below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lent {
    Nothing,
    Extended,
    All,
}

impl Lent {
    /// Decodes the value of [`IMPLIED`].
    pub(crate) fn by_mark(value: Option<&[u8]>) -> Self {
        match value {
            None => Self::Nothing,
            Some(EXTENDED) => Self::Extended,
            Some(_) => Self::All,
        }
    }
}

/// Whether readers of a single image see the attribute in lists. Attributes that are not listed can
/// still be requested by name.
pub(crate) fn is_listed_alone(name: &[u8]) -> bool {
    !name.starts_with(REWRITING)
}

/// Whether a directory passes the attribute on to an implied directory above it. As in containerd,
/// attributes that only root can read are not passed on.
pub(crate) fn is_lent(name: &[u8]) -> bool {
    !name.starts_with(b"trusted.")
}

/// The full names of an overlayfs attribute.
pub(crate) fn attributes(name: &[u8]) -> [Vec<u8>; 2] {
    ATTRIBUTES.map(|prefix| [prefix, name].concat())
}

/// The name under which readers see an attribute; `None` for those that overlayfs reserves for
/// itself.
pub(crate) fn shown(name: &[u8]) -> Option<Cow<'_, [u8]>> {
    for prefix in ATTRIBUTES {
        if let Some(rest) = name.strip_prefix(prefix) {
            let inner = rest.strip_prefix(ESCAPED)?;
            return Some([prefix, inner].concat().into());
        }
    }
    Some(name.into())
}

/// The name under which an image stores the attribute that readers see as `name`.
pub(crate) fn stored(name: &[u8]) -> Cow<'_, [u8]> {
    for prefix in ATTRIBUTES {
        if let Some(rest) = name.strip_prefix(prefix) {
            return [prefix, ESCAPED, rest].concat().into();
        }
    }
    name.into()
}

/// Whether an inode is a whiteout (a character device 0:0), which hides entries of the same name in
/// the layers below.
pub(crate) fn is_whiteout(inode: &Inode) -> bool {
    inode.file_type() == FileType::CharDevice && inode.rdev == DeviceNumber::default()
}

/// The name of the whiteout that hides `name` in a tar archive; `None` if `name` is too long.
pub(crate) fn tar_whiteout(name: &[u8]) -> Option<Vec<u8>> {
    let is_short = TAR_PREFIX.len() + name.len() <= LONGEST_NAME;
    is_short.then(|| [TAR_PREFIX, name].concat())
}

/// Whether a name in a tar archive is a whiteout or another mark.
pub(crate) fn is_tar_mark(name: &[u8]) -> bool {
    name.starts_with(TAR_PREFIX)
}

/// Whether a name is the whiteout of something that cannot be removed.
pub(crate) fn is_impossible(name: &[u8]) -> bool {
    let hidden = name.strip_prefix(TAR_PREFIX);
    hidden.is_some_and(|hidden| matches!(hidden, b"" | b"." | b".."))
}

/// The names in a redirect, and whether they start at the root of the layers; `None` if the
/// redirect is not valid.
pub(crate) fn redirect(value: &[u8]) -> Option<(Vec<Vec<u8>>, bool)> {
    let is_absolute = value.starts_with(b"/");
    let path = if is_absolute { &value[1..] } else { value };
    let names: Vec<_> = path.split(|byte| *byte == b'/').collect();
    let is_name = |name: &&[u8]| {
        let dots = matches!(*name, b"" | b"." | b"..");
        !dots && !name.contains(&0) && name.len() <= LONGEST_NAME
    };
    let is_valid = names.iter().all(is_name) && (is_absolute || names.len() == 1);
    let names = names.into_iter().map(<[u8]>::to_vec).collect();
    is_valid.then_some((names, is_absolute))
}

/// Whether mkfs.erofs made up a directory that an archive implies but does not contain. Such a
/// directory has full permissions for everyone, belongs to the user who converted the archive and
/// who is never root, and is dated 1970, the build time of converted archives.
pub(crate) fn is_implied(inode: &Inode) -> bool {
    let attributes = (inode.mode & 0o7777, inode.mtime, inode.mtime_nsec);
    inode.file_type() == FileType::Directory && attributes == (0o777, 0, 0) && inode.uid != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_overlayfs_are_hidden_and_escaped_ones_are_not() {
        for name in [
            "trusted.overlay.opaque",
            "user.overlay.x",
            "trusted.overlay.",
        ] {
            assert_eq!(shown(name.as_bytes()), None, "{name}");
        }
        for name in ["user.a", "trusted.overlays", "security.overlay.x"] {
            assert_eq!(shown(name.as_bytes()).as_deref(), Some(name.as_bytes()));
            assert_eq!(&*stored(name.as_bytes()), name.as_bytes());
        }
        let (inner, outer) = (b"user.overlay.opaque", b"user.overlay.overlay.opaque");
        assert_eq!(shown(outer).as_deref(), Some(&inner[..]));
        assert_eq!(&*stored(inner), outer);
    }

    #[test]
    fn whiteouts_of_archives_are_names() {
        assert_eq!(tar_whiteout(b"a").as_deref(), Some(&b".wh.a"[..]));
        assert_eq!(tar_whiteout(&[b'a'; 252]), None);
        assert!(is_tar_mark(TAR_OPAQUE) && !is_tar_mark(b".whatever"));
        for name in [".wh.", ".wh..", ".wh..."] {
            assert!(is_impossible(name.as_bytes()), "{name}");
        }
        assert!(!is_impossible(b".wh.a") && !is_impossible(b".wh....") && !is_impossible(b".."));
    }

    #[test]
    fn a_redirect_is_a_name_or_a_path_from_the_root() {
        let names = |value: &[u8]| redirect(value).map(|(names, absolute)| (names.len(), absolute));
        assert_eq!(names(b"a"), Some((1, false)));
        assert_eq!(names(b"/a/b"), Some((2, true)));
        for value in [&b""[..], b"/", b"a/b", b"..", b"/a/../b", b"/a//b", b"a\0"] {
            assert_eq!(names(value), None, "{}", value.escape_ascii());
        }
    }
}
