//! Replies, built by the filesystem in the buffer that is sent.

use std::fmt;

use zerocopy::IntoBytes;

use crate::wire::{Attr, Dirent, EntryOut, padded};

/// The result of a lookup: node and attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The node; never 0, and 1 only for the root.
    pub node: u64,
    /// Its attributes.
    pub attr: Attr,
}

/// The target of an LSEEK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// The next byte that is stored.
    Data,
    /// The next byte that is not stored; the end of the file counts as one.
    Hole,
}

/// A reply being built in a buffer of at most `limit` bytes.
pub(crate) struct Reply<'b> {
    buffer: &'b mut [u8],
    limit: usize,
    length: usize,
}

impl<'b> Reply<'b> {
    pub(crate) fn new(buffer: &'b mut [u8]) -> Self {
        let limit = buffer.len();
        Self {
            buffer,
            limit,
            length: 0,
        }
    }

    /// Allows the reply to grow to `limit` bytes; false if the buffer is smaller.
    pub(crate) fn limit(&mut self, limit: usize) -> bool {
        let fits = limit <= self.buffer.len();
        self.limit = limit.min(self.buffer.len());
        fits
    }

    fn room(&self) -> usize {
        self.limit - self.length
    }

    /// Appends `bytes`; false, without copying any, if they do not fit.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= self.room();
        if fits {
            self.buffer[self.length..][..bytes.len()].copy_from_slice(bytes);
            self.length += bytes.len();
        }
        fits
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.length]
    }

    /// Number of bytes in the reply so far.
    pub(crate) fn length(&self) -> usize {
        self.length
    }
}

/// The answer to a read.
pub struct ReadReply<'r> {
    buffer: &'r mut [u8],
    length: &'r mut usize,
}

impl<'r> ReadReply<'r> {
    pub(crate) fn new(reply: &'r mut Reply<'_>) -> Self {
        Self {
            buffer: &mut reply.buffer[..reply.limit],
            length: &mut reply.length,
        }
    }

    /// Number of bytes still wanted.
    pub fn room(&self) -> usize {
        self.buffer.len() - *self.length
    }

    /// The reply's own memory, [`room`](Self::room) bytes long, which is sent without another copy.
    /// Call [`advance`](Self::advance) with the number of bytes filled.
    pub fn spare(&mut self) -> &mut [u8] {
        &mut self.buffer[*self.length..]
    }

    /// Makes the first `bytes` bytes of [`spare`](Self::spare) part of the reply.
    pub fn advance(&mut self, bytes: usize) {
        *self.length += bytes.min(self.room());
    }
}

impl fmt::Debug for ReadReply<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadReply").finish_non_exhaustive()
    }
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'n> {
    /// Its name.
    pub name: &'n [u8],
    /// Inode number shown to programs.
    pub ino: u64,
    /// `DT_REG` and so on; 0 for unknown.
    pub kind: u8,
    /// Position of the next entry, where a later call begins. Never 0.
    pub next: u64,
}

/// The answer to READDIR or READDIRPLUS.
pub struct DirectoryReply<'r, 'b> {
    reply: &'r mut Reply<'b>,
    /// READDIRPLUS: the number of seconds for which attributes are valid.
    plus: Option<u64>,
}

impl<'r, 'b> DirectoryReply<'r, 'b> {
    pub(crate) fn new(reply: &'r mut Reply<'b>, plus: Option<u64>) -> Self {
        Self { reply, plus }
    }

    /// Whether attributes are wanted with each entry.
    pub fn wants_attributes(&self) -> bool {
        self.plus.is_some()
    }

    /// Whether the reply has no entry, which means that the listing is complete.
    pub fn is_empty(&self) -> bool {
        self.reply.length() == 0
    }

    /// Adds an entry; returns false if it does not fit, which ends the reply. `found` is used if
    /// [`wants_attributes`](Self::wants_attributes); pass `None` for "." and "..", and if the
    /// attributes are unavailable: the kernel then looks up that name itself.
    pub fn add(&mut self, entry: &Entry<'_>, found: Option<&Found>) -> bool {
        let head = self.plus.map_or(0, |_| size_of::<EntryOut>());
        let named = head + size_of::<Dirent>() + entry.name.len();
        let length = padded(named);
        if length > self.reply.room() {
            return false;
        }
        if let Some(seconds) = self.plus {
            let entry = found.map_or_else(EntryOut::default, |f| {
                EntryOut::found(f.node, f.attr, seconds)
            });
            self.reply.push(entry.as_bytes());
        }
        let dirent = Dirent {
            ino: entry.ino,
            off: entry.next,
            namelen: entry.name.len() as u32,
            kind: u32::from(entry.kind),
        };
        self.reply.push(dirent.as_bytes());
        self.reply.push(entry.name);
        self.reply.push(&[0; 8][..length - named])
    }
}

impl fmt::Debug for DirectoryReply<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectoryReply")
            .field("plus", &self.plus)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromBytes;

    use super::*;

    #[test]
    fn a_read_fills_the_buffer_in_place() {
        let mut buffer = [0; 16];
        let mut reply = Reply::new(&mut buffer);
        assert!(reply.limit(10));
        let mut read = ReadReply::new(&mut reply);
        assert_eq!(read.spare().len(), 10);
        read.spare()[..4].copy_from_slice(b"abcd");
        read.advance(4);
        assert_eq!(read.room(), 6);
        read.advance(100);
        assert_eq!(reply.length(), 10);
        assert_eq!(&buffer[..4], b"abcd");
    }

    #[test]
    fn entries_are_padded_to_eight_bytes_and_end_with_the_room() {
        let mut buffer = [0; 64];
        let mut reply = Reply::new(&mut buffer);
        let mut list = DirectoryReply::new(&mut reply, None);
        let entry = Entry {
            name: b"abc",
            ino: 7,
            kind: 8,
            next: 1,
        };
        assert!(list.add(&entry, None));
        assert!(list.add(&entry, None));
        assert!(!list.add(&entry, None));
        assert_eq!(reply.length(), 64);
        let dirent = Dirent::read_from_bytes(&buffer[32..56]).unwrap();
        assert_eq!(
            (dirent.ino, dirent.off, dirent.namelen, dirent.kind),
            (7, 1, 3, 8)
        );
        assert_eq!(&buffer[56..], b"abc\0\0\0\0\0");
    }

    #[test]
    fn attributes_come_before_the_entry_and_none_mean_node_0() {
        let mut buffer = [0xff; 512];
        let mut reply = Reply::new(&mut buffer);
        let mut list = DirectoryReply::new(&mut reply, Some(7));
        let found = Found {
            node: 9,
            attr: crate::wire::Attr {
                ino: 7,
                ..Default::default()
            },
        };
        assert!(list.add(
            &Entry {
                name: b"..",
                ino: 1,
                kind: 4,
                next: 1
            },
            None
        ));
        assert!(list.add(
            &Entry {
                name: b"abc",
                ino: 7,
                kind: 8,
                next: 2
            },
            Some(&found)
        ));
        let first = EntryOut::read_from_bytes(&buffer[..128]).unwrap();
        let second = EntryOut::read_from_bytes(&buffer[160..288]).unwrap();
        assert_eq!((first.nodeid, second.nodeid, second.attr.ino), (0, 9, 7));
    }
}
