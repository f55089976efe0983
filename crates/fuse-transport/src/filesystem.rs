//! What a filesystem must answer.

use rustix::io::Errno;

use crate::reply::{DirectoryReply, ReadReply};
use crate::wire::{Attr, FOREVER, InHeader, Opcode, StatfsOut};

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Process id; 0 when it is outside of the daemon's pid namespace, and for read-ahead.
    pub pid: u32,
}

impl From<&InHeader> for Caller {
    fn from(header: &InHeader) -> Self {
        Self {
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
        }
    }
}

/// A request and how it ended, for logs.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'r> {
    /// Its kind; "unknown" for one that is not known.
    pub kind: &'static str,
    /// Its number.
    pub unique: u64,
    /// The node it is about.
    pub node: u64,
    /// Who asked.
    pub caller: Caller,
    /// The name it carries, where it is one.
    pub name: Option<&'r [u8]>,
    /// Where a read begins and how long it is.
    pub range: Option<(u64, u32)>,
    /// The error it was answered with.
    pub error: Option<Errno>,
}

/// A name found: its node and attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The node; never 0, and 1 only for the root.
    pub node: u64,
    /// Its attributes.
    pub attr: Attr,
}

/// What LSEEK looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// The next byte that is stored.
    Data,
    /// The next byte that is not; the end of the file counts as one.
    Hole,
}

/// A request that was served, with the times of CLOCK_MONOTONIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// Its kind; `None` for one that is not known.
    pub opcode: Option<Opcode>,
    /// The kernel's number of it.
    pub unique: u64,
    /// A thread took it.
    pub taken_ns: u64,
    /// The filesystem had answered.
    pub answered_ns: u64,
    /// The reply was on its way: written to the device, or put into the ring.
    pub sent_ns: u64,
    /// Bytes of the reply.
    pub bytes: usize,
}

/// A read-only filesystem whose content never changes.
///
/// Nodes are the filesystem's own numbers; 1 is the root, 0 is no node. The calls come from many
/// threads at once. An error is answered to the program that asked; a panic becomes EIO.
pub trait Filesystem: Send + Sync {
    /// Seconds for which the kernel may use names and attributes without asking: for good, since
    /// nothing changes. 0 where every access must be seen.
    fn lasting(&self) -> u64 {
        FOREVER
    }

    /// The node that `name` leads to in the directory `parent`; `None` when there is no such name.
    /// With NFS export also "." (of any node) and "..".
    fn lookup(&self, caller: Caller, parent: u64, name: &[u8]) -> Result<Option<Found>, Errno>;

    /// The attributes of a node.
    fn attributes(&self, caller: Caller, node: u64) -> Result<Attr, Errno>;

    /// The target of a symbolic link, at most 4095 bytes.
    fn read_link(&self, caller: Caller, node: u64) -> Result<Vec<u8>, Errno>;

    /// Bytes of a file from `offset` on, as many as the reply has room for; fewer mean that the
    /// file ends there.
    fn read(
        &self,
        caller: Caller,
        node: u64,
        offset: u64,
        reply: &mut ReadReply<'_>,
    ) -> Result<(), Errno>;

    /// Entries of a directory from `position` on (0 is its beginning), until the reply is full.
    fn read_directory(
        &self,
        caller: Caller,
        node: u64,
        position: u64,
        reply: &mut DirectoryReply<'_, '_>,
    ) -> Result<(), Errno>;

    /// The value of an extended attribute; `None` when it has none of this name. ENOSYS says that no
    /// file has any, and the kernel never asks again.
    fn xattr(&self, caller: Caller, node: u64, name: &[u8]) -> Result<Option<Vec<u8>>, Errno>;

    /// The names of all extended attributes; ENOSYS as above.
    fn xattr_names(&self, caller: Caller, node: u64) -> Result<Vec<Vec<u8>>, Errno>;

    /// Sizes of the whole filesystem.
    fn statfs(&self) -> Result<StatfsOut, Errno>;

    /// The next data or hole from `offset` on. ENOSYS (the default) takes every file for full of
    /// data; ENXIO when there is none.
    fn seek(&self, _caller: Caller, _node: u64, _offset: u64, _what: Seek) -> Result<u64, Errno> {
        Err(Errno::NOSYS)
    }

    /// What an ioctl of a directory is answered with, at most `room` bytes; `input` are those that the
    /// program sent along. ENOTTY (the default): there is none of this number.
    fn directory_ioctl(
        &self,
        _caller: Caller,
        _node: u64,
        _command: u32,
        _input: &[u8],
        _room: usize,
    ) -> Result<Vec<u8>, Errno> {
        Err(Errno::NOTTY)
    }

    /// The kernel drops `count` of the look-ups of `node` that it was answered. Nothing to do where
    /// nodes carry no state.
    fn forget(&self, _node: u64, _count: u64) {}

    /// Whether [`seen`](Self::seen) is to be called: for debugging.
    fn watches(&self) -> bool {
        false
    }

    /// Called after each request.
    fn seen(&self, _seen: &Seen<'_>) {}

    /// Whether [`served`](Self::served) is to be called. Asked for every request.
    fn times(&self) -> bool {
        false
    }

    /// Hears of a request that was served and when, on the thread that served it.
    fn served(&self, _served: &Served) {}
}
