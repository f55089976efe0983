//! The target directory of an extraction. Nothing outside it is touched, whatever names the image
//! contains.
//!
//! Everything is opened from the directory's descriptor with `RESOLVE_BENEATH` and
//! `RESOLVE_NO_SYMLINKS`, so a symlink that an earlier entry created, or that another process
//! creates meanwhile, is never followed. Files are always created, and existing ones are never
//! opened for writing: they may be hard links to files elsewhere.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context, bail};
use erofs_engine::erofs_format::{FileType, Inode};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::entries::is_plain;

/// Paths of this many bytes or more are resolved in several steps. A system call accepts at most
/// 4096 bytes, including the NUL.
const PATH_MAX: usize = 4000;
/// Only the owner may read unfinished entries.
const UNFINISHED_DIRECTORY: Mode = Mode::RWXU;
const UNFINISHED_FILE: Mode = Mode::RUSR.union(Mode::WUSR);
/// The xattrs of a file's own ACL, which it may have inherited, and of the ACL that a directory's
/// children inherit.
const ACLS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];

/// How to handle existing entries that have the same names as entries of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Existing entries are errors; the directory must be empty.
    Nothing,
    /// Existing entries are replaced.
    Everything,
    /// Existing entries are replaced, except files that an earlier run finished.
    Unfinished,
    /// Existing directories are kept and extracted into; any other existing entry is an error.
    Files,
}

/// The metadata that entries receive, apart from their times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    pub owner: bool,
    /// Mask of the permission bits that entries receive.
    pub permissions: u16,
    pub xattrs: bool,
}

impl Keep {
    pub const ALL: Self = Self {
        owner: true,
        permissions: 0o7777,
        xattrs: true,
    };
}

/// A directory to extract into.
pub struct Target {
    root: OwnedFd,
    replace: Replace,
    pub keep: Keep,
    /// Whether new files inherit an ACL from the directory.
    inherits: bool,
}

impl Target {
    /// Opens the directory, or creates it. A directory that is not empty is accepted only if
    /// `replace` allows it.
    pub fn open(path: &Path, replace: Replace, keep: Keep) -> anyhow::Result<Self> {
        let shown = || path.display().to_string();
        match std::fs::create_dir(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let is_directory = std::fs::metadata(path).is_ok_and(|metadata| metadata.is_dir());
                anyhow::ensure!(is_directory, "{}: not a directory", shown());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!("{}: its parent directory does not exist", shown());
            }
            Err(error) => return Err(error).with_context(shown),
        }
        let mut entries = std::fs::read_dir(path).with_context(shown)?;
        if entries.next().is_some() && replace == Replace::Nothing {
            bail!(
                "{}: not empty (--force replaces existing files, --continue resumes an \
                 extraction)",
                shown()
            );
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).with_context(shown)?;
        let default_acl = rustix::fs::getxattr_query(path, ACLS[1]);
        Ok(Self {
            root,
            replace,
            keep,
            inherits: default_acl.is_ok(),
        })
    }

    fn replaces(&self) -> bool {
        matches!(self.replace, Replace::Everything | Replace::Unfinished)
    }

    /// Whether an earlier run finished this file: a finished file has the size and the time that
    /// the image records.
    pub fn keeps(&self, path: &[u8], inode: &Inode) -> bool {
        if self.replace != Replace::Unfinished || inode.file_type() != FileType::Regular {
            return false;
        }
        let found = self.parent(path).and_then(|(parent, name)| {
            Ok(rustix::fs::statat(
                &parent,
                name,
                AtFlags::SYMLINK_NOFOLLOW,
            )?)
        });
        found.is_ok_and(|status| {
            rustix::fs::FileType::from_raw_mode(status.st_mode) == rustix::fs::FileType::RegularFile
                && u64::try_from(status.st_size) == Ok(inode.size)
                && (status.st_mtime, status.st_mtime_nsec) == (inode.mtime, inode.mtime_nsec.into())
        })
    }

    /// Creates the directory at `path`. One that exists already is made accessible to its owner and
    /// loses its ACLs, which its children would inherit.
    pub fn make_directory(&self, path: &[u8]) -> io::Result<()> {
        if !path.is_empty() {
            let (parent, name) = self.parent(path)?;
            match rustix::fs::mkdirat(&parent, name, UNFINISHED_DIRECTORY) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) if self.replace != Replace::Nothing => {}
                Err(error) => return Err(error.into()),
            }
            if self.open_directory(path).is_err() {
                if !self.replaces() {
                    return Err(Errno::NOTDIR.into());
                }
                rustix::fs::unlinkat(&parent, name, AtFlags::empty())?;
                rustix::fs::mkdirat(&parent, name, UNFINISHED_DIRECTORY)?;
                return Ok(());
            }
        }
        let directory = self.open_directory(path)?;
        // A user who does not own the directory may still be allowed to write into it.
        let _ = rustix::fs::fchmod(&directory, UNFINISHED_DIRECTORY);
        for name in ACLS {
            let _ = rustix::fs::fremovexattr(&directory, name);
        }
        Ok(())
    }

    /// Opens the directory at `path`.
    pub fn open_directory(&self, path: &[u8]) -> io::Result<OwnedFd> {
        if !path.is_empty() && !is_plain(path) {
            return Err(outside());
        }
        self.descend(path, OFlags::RDONLY)
    }

    /// Creates a new file.
    pub fn make_file(&self, path: &[u8]) -> io::Result<File> {
        let file = self.make_empty_file(path)?;
        if self.inherits {
            // The file has no ACL if the directory's was removed meanwhile.
            let _ = rustix::fs::fremovexattr(&file, ACLS[0]);
        }
        Ok(file.into())
    }

    fn make_empty_file(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        if path.len() < PATH_MAX && is_plain(path) {
            match beneath(&self.root, path, flags, UNFINISHED_FILE) {
                Err(Errno::EXIST) if self.replaces() => {}
                result => return Ok(result?),
            }
        }
        let (parent, name) = self.parent(path)?;
        let make = || beneath(&parent, name, flags, UNFINISHED_FILE);
        self.replacing(&parent, name, make)
    }

    /// Creates a new symlink.
    pub fn make_symlink(&self, path: &[u8], target: &[u8]) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        let make = || rustix::fs::symlinkat(target, &parent, name);
        self.replacing(&parent, name, make)
    }

    /// Creates a new device node, FIFO or socket.
    pub fn make_node(&self, path: &[u8], inode: &Inode) -> io::Result<()> {
        let kind = rustix::fs::FileType::from_raw_mode(inode.mode.into());
        let device = rustix::fs::makedev(inode.rdev.major, inode.rdev.minor);
        let (parent, name) = self.parent(path)?;
        let make = || rustix::fs::mknodat(&parent, name, kind, UNFINISHED_FILE, device);
        self.replacing(&parent, name, make)
    }

    /// Creates another name for the file at `first`.
    pub fn make_link(&self, first: &[u8], path: &[u8]) -> io::Result<()> {
        let (old_parent, old_name) = self.parent(first)?;
        let (parent, name) = self.parent(path)?;
        let make = || rustix::fs::linkat(&old_parent, old_name, &parent, name, AtFlags::empty());
        self.replacing(&parent, name, make)
    }

    /// A descriptor that denotes the entry at `path`, even if it is a symlink.
    pub fn stand_in(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let (parent, name) = self.parent(path)?;
        // With these two flags, even RESOLVE_NO_SYMLINKS permits opening a symlink itself.
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        Ok(beneath(&parent, name, flags, Mode::empty())?)
    }

    /// Removes an incomplete file.
    pub fn remove(&self, path: &[u8]) -> io::Result<()> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::unlinkat(&parent, name, AtFlags::empty())?)
    }

    /// Creates an entry, after removing an existing one at its path if `replace` allows it.
    fn replacing<T>(
        &self,
        parent: &OwnedFd,
        name: &[u8],
        make: impl Fn() -> rustix::io::Result<T>,
    ) -> io::Result<T> {
        match make() {
            Err(Errno::EXIST) if self.replaces() => {
                rustix::fs::unlinkat(parent, name, AtFlags::empty())?;
                Ok(make()?)
            }
            result => Ok(result?),
        }
    }

    /// The parent directory of `path`, and the last component.
    fn parent<'p>(&self, path: &'p [u8]) -> io::Result<(OwnedFd, &'p [u8])> {
        if !is_plain(path) {
            return Err(outside());
        }
        let slash = path.iter().rposition(|&byte| byte == b'/');
        let (directory, name) = match slash {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&path[..0], path),
        };
        Ok((self.descend(directory, OFlags::PATH)?, name))
    }

    /// Opens a directory, in several steps if its path is too long for a system call.
    fn descend(&self, path: &[u8], access: OFlags) -> io::Result<OwnedFd> {
        let flags = access | OFlags::DIRECTORY;
        let mut rest = path;
        let mut from = None;
        while rest.len() >= PATH_MAX {
            let slash = rest[..PATH_MAX].iter().rposition(|&byte| byte == b'/');
            let slash = slash.ok_or(Errno::NAMETOOLONG)?;
            let step = OFlags::PATH | OFlags::DIRECTORY;
            let here = from.as_ref().unwrap_or(&self.root);
            from = Some(beneath(here, &rest[..slash], step, Mode::empty())?);
            rest = &rest[slash + 1..];
        }
        let here = from.as_ref().unwrap_or(&self.root);
        let rest = if rest.is_empty() { b"." } else { rest };
        Ok(beneath(here, rest, flags, Mode::empty())?)
    }
}

fn outside() -> io::Error {
    io::Error::other("the name leads out of its directory")
}

/// Opens the entry at `path` below a directory, without leaving the directory or following a
/// symlink.
fn beneath(
    directory: &OwnedFd,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(directory, path, flags | OFlags::CLOEXEC, mode, resolve)
}
