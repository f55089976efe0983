//! Operations that any client can perform in a mount, whose root directory the caller supplies.
//! Paths are bytes from profiles and from the ring, which are not trusted: they cannot lead out of
//! the mount, and only directories and regular files are opened.

use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;

use rustix::fs::{
    Advice, AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, fadvise, fstat, openat2,
    readlinkat, statat,
};
use rustix::io::{Errno, Result};

use crate::events::Inode;

/// Size of the buffer for listings; the kernel requests as many bytes of entries at a time as fit.
const ENTRIES_BYTES: usize = 256 << 10;

/// Maximum number of directory entries that are read, because an image may repeat them endlessly.
const MOST_ENTRIES: usize = 1 << 16;

/// Buffer for listings; one per thread.
pub(crate) struct Room(Vec<MaybeUninit<u8>>);

impl Room {
    pub(crate) fn new() -> Self {
        Self(vec![MaybeUninit::uninit(); ENTRIES_BYTES])
    }
}

/// Lists a directory, so that the kernel caches its entries and their attributes. `each` gets names
/// and inode numbers, and says whether to continue.
pub(crate) fn list(
    root: &OwnedFd,
    path: &[u8],
    room: &mut Room,
    mut each: impl FnMut(&[u8], u64) -> bool,
) -> Result<()> {
    let directory = open(root, path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let mut entries = RawDir::new(directory, &mut room.0);
    let mut count = 0;
    while let Some(entry) = entries.next() {
        let entry = entry?;
        count += 1;
        if count > MOST_ENTRIES || !each(entry.file_name().to_bytes(), entry.ino()) {
            break;
        }
    }
    Ok(())
}

/// Looks up a name, which need not exist; if it is a symlink, its target is read.
pub(crate) fn look_up(root: &OwnedFd, path: &[u8]) -> Result<()> {
    let at = path.iter().rposition(|byte| *byte == b'/');
    let (parent, name) = at.map_or((&b""[..], path), |at| (&path[..at], &path[at + 1..]));
    if matches!(name, b"" | b"." | b"..") {
        return Err(Errno::INVAL);
    }
    let parent = open(root, parent, OFlags::PATH | OFlags::DIRECTORY)?;
    let found = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
        readlinkat(&parent, name, Vec::new())?;
    }
    Ok(())
}

/// The inode at a path; no symlink is followed.
pub(crate) fn status(root: &OwnedFd, path: &[u8]) -> Result<Inode> {
    let status = fstat(open(root, path, OFlags::PATH)?)?;
    Ok(Inode {
        ino: status.st_ino,
        mode: status.st_mode,
        size: status.st_size.cast_unsigned(),
    })
}

/// Opens a regular file; returns it with its inode number and length in bytes.
pub(crate) fn open_file(root: &OwnedFd, path: &[u8]) -> Result<(OwnedFd, u64, u64)> {
    // Opening a device or a FIFO could have side effects or block.
    let Inode { ino, mode, size } = status(root, path)?;
    if FileType::from_raw_mode(mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    let access = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok((open(root, path, access)?, ino, size))
}

/// Makes the kernel read bytes of a file, without waiting for them.
pub(crate) fn read_ahead(file: &OwnedFd, offset: u64, length: u64) -> Result<()> {
    // With a length of 0, the kernel would read up to the end of the file.
    let Some(length) = NonZeroU64::new(length) else {
        return Ok(());
    };
    fadvise(file, offset, Some(length), Advice::WillNeed)
}

/// Opens a path, which cannot lead out of the mount.
fn open(root: &OwnedFd, path: &[u8], access: OFlags) -> Result<OwnedFd> {
    let path = if path.is_empty() { b"." } else { path };
    let flags = access | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS;
    openat2(root, path, flags, Mode::empty(), inside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, mkfifoat, symlinkat};

    #[test]
    fn paths_lead_nowhere_out_and_open_nothing_but_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(path("root/sub")).unwrap();
        std::fs::write(path("outside"), "secret").unwrap();
        std::fs::write(path("root/sub/file"), "1234567").unwrap();
        symlinkat("../outside", CWD, path("root/link")).unwrap();
        symlinkat("/", CWD, path("root/up")).unwrap();
        mkfifoat(CWD, path("root/fifo"), Mode::from_raw_mode(0o600)).unwrap();
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let root = rustix::fs::open(path("root"), flags, Mode::empty()).unwrap();
        let (_, ino, size) = open_file(&root, b"sub/file").unwrap();
        assert_eq!(size, 7);
        let places: [&[u8]; 9] = [
            b"../outside",
            b"link",
            b"up/etc/passwd",
            b"/etc/passwd",
            b"fifo",
            b"sub",
            b"none",
            b"",
            b"sub/../../outside",
        ];
        for place in places {
            assert!(open_file(&root, place).is_err(), "{place:?}");
        }
        let mut names = Vec::new();
        let mut add = |name: &[u8], number| {
            names.push((name.to_vec(), number));
            true
        };
        list(&root, b"sub", &mut Room::new(), &mut add).unwrap();
        for outside in [&b".."[..], b"up", b"link"] {
            assert!(list(&root, outside, &mut Room::new(), &mut add).is_err());
        }
        assert!(names.contains(&(b"file".to_vec(), ino)));
        assert!(!names.iter().any(|(name, _)| name == b"outside"));
        assert_eq!(look_up(&root, b"link"), Ok(()));
        assert_eq!(look_up(&root, b"none"), Err(Errno::NOENT));
        assert!(look_up(&root, b"up/etc").is_err() && look_up(&root, b"..").is_err());
        let file = open_file(&root, b"sub/file").unwrap().0;
        assert_eq!(read_ahead(&file, 0, 4096), Ok(()));
    }
}
