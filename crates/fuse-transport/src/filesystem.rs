//! The trait of a read-only filesystem.

use std::fmt;

use rustix::io::Errno;

use crate::reply::{DirectoryReply, Found, ReadReply, Seek};
use crate::request_info::{Caller, Seen, Served};
use crate::wire::{Attr, FOREVER, StatfsOut};

/// Waits for the data that a request lacks, on a thread that may wait. An error becomes the
/// request's answer.
pub type Wait = Box<dyn FnOnce(Caller) -> Result<(), Errno> + Send>;

/// Why a request was not served.
pub enum Failure {
    /// An error, which is sent to the calling program.
    Error(Errno),
    /// The answer has to wait for something outside this process. A thread that may wait calls the
    /// function, and then the request is served again; see
    /// [`DeferredChannel`](crate::DeferredChannel).
    Deferred(Wait),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Self::Error(errno)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Error(errno) => f.debug_tuple("Error").field(errno).finish(),
            Self::Deferred(_) => f.debug_struct("Deferred").finish_non_exhaustive(),
        }
    }
}

/// The answer to read-ahead that the filesystem [declines](Filesystem::declines). No program sees
/// this error: the kernel requests each page again when a program uses it.
pub const DECLINED: Errno = Errno::CANCELED;

/// A read-only filesystem whose content never changes.
///
/// Nodes are the filesystem's own numbers, which stay valid until the mount ends; 1 is the root, 0
/// is not a node. Many threads call the methods at the same time. An error is sent to the calling
/// program; a panic becomes EIO.
pub trait Filesystem: Send + Sync {
    /// Seconds for which the kernel may cache names and attributes. The default is forever, since
    /// nothing changes. Return 0 if the filesystem must see every access.
    fn lasting(&self) -> u64 {
        FOREVER
    }

    /// The node of `name` in the directory `parent`; `None` if there is no such name. With NFS
    /// export, also handles "." (of any node) and "..".
    fn lookup(&self, caller: Caller, parent: u64, name: &[u8]) -> Result<Option<Found>, Failure>;

    /// The attributes of a node.
    fn attributes(&self, caller: Caller, node: u64) -> Result<Attr, Failure>;

    /// The target of a symbolic link, at most 4095 bytes.
    fn read_link(&self, caller: Caller, node: u64) -> Result<Vec<u8>, Failure>;

    /// Bytes of a file from `offset` on, as many as the reply has room for; fewer at the end of the
    /// file.
    fn read(
        &self,
        caller: Caller,
        node: u64,
        offset: u64,
        reply: &mut ReadReply<'_>,
    ) -> Result<(), Failure>;

    /// Whether to decline the kernel's read-ahead of `size` bytes from `offset` on. Called once
    /// before each [`read`](Self::read) for the page cache. A range that was declined must be
    /// served when it is requested again.
    fn declines(&self, _caller: Caller, _node: u64, _offset: u64, _size: u32) -> bool {
        false
    }

    /// Entries of a directory from `position` on (0 is its beginning), until the reply is full.
    fn read_directory(
        &self,
        caller: Caller,
        node: u64,
        position: u64,
        reply: &mut DirectoryReply<'_, '_>,
    ) -> Result<(), Failure>;

    /// The value of an extended attribute; `None` if the node has none with this name. ENOSYS means
    /// that no file has any, and the kernel never asks again.
    fn xattr(&self, caller: Caller, node: u64, name: &[u8]) -> Result<Option<Vec<u8>>, Failure>;

    /// The names of all extended attributes; ENOSYS as for [`xattr`](Self::xattr).
    fn xattr_names(&self, caller: Caller, node: u64) -> Result<Vec<Vec<u8>>, Failure>;

    /// Sizes of the whole filesystem.
    fn statfs(&self) -> Result<StatfsOut, Failure>;

    /// The next data or hole from `offset` on. ENXIO if there is none; ENOSYS (the default) if
    /// every file counts as data throughout.
    fn seek(&self, _caller: Caller, _node: u64, _offset: u64, _what: Seek) -> Result<u64, Failure> {
        Err(Errno::NOSYS.into())
    }

    /// The answer to an ioctl on a directory, at most `room` bytes; `input` is the data that the
    /// program passed. ENOTTY (the default): there is no ioctl with this number.
    fn directory_ioctl(
        &self,
        _caller: Caller,
        _node: u64,
        _command: u32,
        _input: &[u8],
        _room: usize,
    ) -> Result<Vec<u8>, Failure> {
        Err(Errno::NOTTY.into())
    }

    /// Whether to call [`seen`](Self::seen), for debugging.
    fn watches(&self) -> bool {
        false
    }

    /// Called after each request, before the reply is sent.
    fn seen(&self, _seen: &Seen<'_>) {}

    /// Whether to call [`served`](Self::served). Checked for every request.
    fn times(&self) -> bool {
        false
    }

    /// Called with the times of a served request, on the thread that served it.
    fn served(&self, _served: &Served) {}
}
