//! The file of decoded bytes that launches from an image read: its name, its location, and how it
//! is replaced.
//!
//! Its entries are keyed by stored bytes and never used for other bytes, but a server taken over by
//! a hostile image could write anything. Therefore the helper, which never reads an image, derives
//! the name from the kernel's information about the image: device, inode number, size, and time of
//! the last change. On a FUSE or network filesystem the kernel would only repeat the claims of a
//! server.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use erofs_engine::Offset;
use launch_profile::PAGE;
use rustix::fs::{AtFlags, CWD, FileType, FsWord, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::cache_folder::{cache_folder, remove_oldest};
use erofs_fuse::error::Error;

/// Suffix of these files' names.
pub(crate) const END: &str = ".decoded";

/// Maximum size in bytes of the files of all images together.
const TOTAL: u64 = 512 << 20;

/// A file may take up at most one part in this many of the free space.
const SHARE_OF_FREE: u64 = 8;

/// How many times one mount may write its file.
const WRITES: usize = 8;

/// Filesystems without a block device that are served by the kernel alone.
const SERVED_BY_KERNEL: [FsWord; 3] = [
    libc::TMPFS_MAGIC,
    libc::BTRFS_SUPER_MAGIC,
    libc::OVERLAYFS_SUPER_MAGIC,
];

/// The decoded bytes of one image.
#[derive(Debug)]
pub(crate) struct DecodedFile {
    path: PathBuf,
    /// Prefix that the names derived from all states of one image file have in common.
    stem: String,
    /// Size limit of the file.
    limit: u64,
    /// How many more times the file may be written.
    writes: usize,
    /// The file being written, which has no name yet, and its size.
    next: Option<(File, u64)>,
}

impl DecodedFile {
    /// The file for an open image, which begins at `offset` in its own file; `None` if decoded
    /// bytes of this image cannot be kept.
    pub(crate) fn of(image: &OwnedFd, offset: Offset, limit: u64) -> Option<Self> {
        let status = rustix::fs::fstat(image).ok()?;
        let is_file = FileType::from_raw_mode(status.st_mode) == FileType::RegularFile;
        if limit == 0 || !is_file || !is_served_by_kernel(image, &status) {
            return None;
        }
        let offset = match offset {
            Offset::Bytes(offset) => offset.to_string(),
            Offset::Auto => "auto".to_owned(),
        };
        let stem = format!("{:x}-{:x}-{offset}-", status.st_dev, status.st_ino);
        let (seconds, nanoseconds) = (status.st_ctime, status.st_ctime_nsec);
        let name = format!(
            "{stem}{:x}-{seconds:x}.{nanoseconds:x}{END}",
            status.st_size
        );
        Some(Self {
            path: cache_folder().ok()?.join(name),
            stem,
            // Includes room for the index and checksums after the entries.
            limit: limit + PAGE,
            writes: WRITES,
            next: None,
        })
    }

    /// Opens the file for reading, and marks it as used; `None` if it does not exist or is larger
    /// than allowed. Another user must neither have created the file nor be able to read it.
    pub(crate) fn open(&self) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let file = rustix::fs::open(&self.path, flags, Mode::empty()).ok()?;
        let file = File::from(file);
        let status = file.metadata().ok()?;
        let is_ours = status.uid() == rustix::process::geteuid().as_raw();
        let _ = file.set_modified(SystemTime::now());
        let is_usable = status.is_file() && status.len() <= self.limit;
        (is_usable && is_ours && status.mode() & 0o077 == 0).then(|| file.into())
    }

    /// Appends to the next version of the file.
    pub(crate) fn add(&mut self, more: &[u8]) -> Result<(), Error> {
        let (mut file, bytes) = match self.next.take() {
            Some(next) => next,
            None => (self.begin()?, 0),
        };
        let bytes = bytes + more.len() as u64;
        if bytes > self.limit {
            return Err(refused("they exceed decoded_size="));
        }
        let written = file.write_all(more);
        written.map_err(Error::std_io(self.path.display().to_string()))?;
        self.next = Some((file, bytes));
        Ok(())
    }

    /// Creates a file without a name, so that a helper that dies leaves none behind.
    fn begin(&mut self) -> Result<File, Error> {
        let writes = self.writes.checked_sub(1);
        self.writes = writes.ok_or_else(|| refused("write limit reached"))?;
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let shown = || folder.display().to_string();
        let space = rustix::fs::statvfs(folder).map_err(Error::io(shown()))?;
        if space.f_bavail.saturating_mul(space.f_frsize) / SHARE_OF_FREE < self.limit {
            return Err(refused("too little space is free"));
        }
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR);
        Ok(file.map_err(Error::io(shown()))?.into())
    }

    /// Replaces the previous file with the bytes that were added, and removes files for earlier
    /// states of the same image.
    pub(crate) fn commit(&mut self) -> Result<(), Error> {
        let none = || refused("there are none");
        let (file, _) = self.next.take().ok_or_else(none)?;
        self.remove();
        let file = format!("/proc/self/fd/{}", file.as_raw_fd());
        match rustix::fs::linkat(CWD, file, CWD, &self.path, AtFlags::SYMLINK_FOLLOW) {
            // EEXIST: another mount of the image has created the file in the meantime.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(Error::io(self.path.display().to_string())(errno)),
        }
        remove_oldest(&self.path, END, u64::MAX, TOTAL);
        Ok(())
    }

    /// Removes all files derived from the image's file.
    fn remove(&self) {
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            if name.starts_with(self.stem.as_bytes()) && name.ends_with(END.as_bytes()) {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }
}

fn is_served_by_kernel(image: impl AsFd, status: &Stat) -> bool {
    let has_device = rustix::fs::major(status.st_dev) != 0;
    rustix::fs::fstatfs(image).is_ok_and(|it| match it.f_type {
        libc::FUSE_SUPER_MAGIC => false,
        kind => has_device || SERVED_BY_KERNEL.contains(&kind),
    })
}

fn refused(why: &str) -> Error {
    Error::Profile(format!("decoded bytes of launches are not kept: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_folder(folder: &Path, limit: u64) -> DecodedFile {
        DecodedFile {
            path: folder.join("image.decoded"),
            stem: "image".to_owned(),
            limit,
            writes: WRITES,
            next: None,
        }
    }

    fn count(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn bytes_are_there_when_they_are_complete_and_for_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = in_folder(folder.path(), 8);
        assert!(file.open().is_none());
        file.add(b"four").unwrap();
        assert_eq!(count(folder.path()), 0, "a file without a name");
        file.add(b"more").unwrap();
        std::fs::write(folder.path().join("image-before.decoded"), "").unwrap();
        file.commit().unwrap();
        assert_eq!(
            count(folder.path()),
            1,
            "of the image before it was changed"
        );
        let mut written = String::new();
        let mut read = File::from(file.open().unwrap());
        std::io::Read::read_to_string(&mut read, &mut written).unwrap();
        assert_eq!(written, "fourmore");
        // The next file replaces the previous one.
        file.add(b"next").unwrap();
        file.commit().unwrap();
        assert_eq!(std::fs::read(&file.path).unwrap(), b"next");
        assert!(file.commit().is_err());
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o640);
        std::fs::set_permissions(&file.path, mode).unwrap();
        assert!(file.open().is_none(), "others could read it");
    }

    #[test]
    fn a_server_cannot_write_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = in_folder(folder.path(), 4);
        assert!(file.add(b"fives").is_err());
        assert!(file.commit().is_err());
        for _ in 1..WRITES {
            file.add(b"four").unwrap();
            assert!(file.add(b"s").is_err());
        }
        assert!(file.add(b"four").is_err(), "too often");
        let mut large = in_folder(folder.path(), u64::MAX / 2);
        assert!(large.add(b"x").is_err(), "no space for it");
        assert_eq!(count(folder.path()), 0);
    }

    #[test]
    fn each_change_of_an_image_makes_another_name_and_what_is_no_file_has_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        std::fs::write(&path, "one").unwrap();
        let of = |path: &Path, offset, limit| {
            DecodedFile::of(&File::open(path).unwrap().into(), offset, limit)
        };
        let Some(one) = of(&path, Offset::Bytes(0), 1) else {
            return println!("skipped: {} is no place for them", folder.path().display());
        };
        let name = |of: Option<DecodedFile>| of.unwrap().path;
        assert_eq!(name(of(&path, Offset::Bytes(0), 1)), one.path);
        assert_ne!(name(of(&path, Offset::Auto, 1)), one.path);
        assert!(of(&path, Offset::Bytes(0), 0).is_none());
        // Content and mtime, which programs can set, are unchanged.
        let before = std::fs::metadata(&path).unwrap().modified().unwrap();
        let mut changed = one.path.clone();
        while changed == one.path {
            let file = File::options().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"two", 0).unwrap();
            file.set_modified(before).unwrap();
            changed = name(of(&path, Offset::Bytes(0), 1));
        }
        for path in ["/dev/null", "/proc/self/status", "/"] {
            assert!(of(Path::new(path), Offset::Bytes(0), 1).is_none(), "{path}");
        }
    }
}
