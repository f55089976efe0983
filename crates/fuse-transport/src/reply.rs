//! Where a filesystem puts its answers: straight into what is sent.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::filesystem::Found;
use crate::wire::{Dirent, EntryOut, padded};

/// Bytes that live elsewhere, kept alive until they are sent.
pub type Shared = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// One slice of a reply.
pub(crate) enum Piece {
    /// Of the reply's own buffer.
    Own(Range<usize>),
    /// Of something shared.
    Shared(Shared, Range<usize>),
}

/// A reply being built in a buffer of at most `limit` bytes, with shared pieces in between where
/// the transport can gather.
pub(crate) struct Reply<'b> {
    buffer: &'b mut [u8],
    limit: usize,
    /// Bytes of `buffer` used.
    own: usize,
    /// Start of the bytes of `buffer` that are in no piece yet.
    mark: usize,
    total: usize,
    pieces: Option<&'b mut Vec<Piece>>,
}

impl<'b> Reply<'b> {
    /// `pieces` must be empty; `None` where the transport sends one buffer only.
    pub(crate) fn new(buffer: &'b mut [u8], pieces: Option<&'b mut Vec<Piece>>) -> Self {
        let limit = buffer.len();
        Self {
            buffer,
            limit,
            own: 0,
            mark: 0,
            total: 0,
            pieces,
        }
    }

    /// Lets it grow to `limit` bytes and no more; false when the buffer has less.
    pub(crate) fn limit(&mut self, limit: usize) -> bool {
        let fits = limit <= self.buffer.len();
        self.limit = limit.min(self.buffer.len());
        fits
    }

    fn room(&self) -> usize {
        self.limit - self.total
    }

    fn spare(&mut self) -> &mut [u8] {
        let room = self.room();
        &mut self.buffer[self.own..self.own + room]
    }

    fn advance(&mut self, bytes: usize) {
        let bytes = bytes.min(self.room());
        self.own += bytes;
        self.total += bytes;
    }

    /// Copies `bytes` in; false, with nothing done, when they do not fit.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= self.room();
        if fits {
            self.spare()[..bytes.len()].copy_from_slice(bytes);
            self.advance(bytes.len());
        }
        fits
    }

    fn share(&mut self, owner: Shared, range: Range<usize>) {
        let length = range.len().min(self.room());
        let range = range.start..range.start + length;
        let Some(pieces) = self.pieces.as_deref_mut() else {
            self.push(&(*owner).as_ref()[range]);
            return;
        };
        if self.mark < self.own {
            pieces.push(Piece::Own(self.mark..self.own));
            self.mark = self.own;
        }
        pieces.push(Piece::Shared(owner, range));
        self.total += length;
    }

    /// Ends it: its length, and the bytes of the buffer that are in no piece.
    pub(crate) fn finish(self) -> Finished {
        Finished {
            length: self.total,
            tail: self.mark..self.own,
        }
    }
}

/// A reply that is complete: the pieces, then `tail` of the buffer.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) length: usize,
    pub(crate) tail: Range<usize>,
}

/// The answer to a read.
pub struct ReadReply<'r> {
    reply: &'r mut dyn ReadSink,
}

/// Hides the lifetime of the reply's buffer.
trait ReadSink {
    fn sink(&mut self) -> (&mut [u8], usize);
    fn advance(&mut self, bytes: usize);
    fn share(&mut self, owner: Shared, range: Range<usize>);
}

impl ReadSink for Reply<'_> {
    fn sink(&mut self) -> (&mut [u8], usize) {
        let room = self.room();
        (Reply::spare(self), room)
    }
    fn advance(&mut self, bytes: usize) {
        Reply::advance(self, bytes);
    }
    fn share(&mut self, owner: Shared, range: Range<usize>) {
        Reply::share(self, owner, range);
    }
}

impl<'r> ReadReply<'r> {
    pub(crate) fn new<'b: 'r>(reply: &'r mut Reply<'b>) -> Self {
        Self { reply }
    }

    /// Bytes still wanted.
    pub fn room(&mut self) -> usize {
        self.reply.sink().1
    }

    /// The reply's own memory, [`room`](Self::room) bytes long: sent as it is, without a copy. Say
    /// with [`advance`](Self::advance) how much of it was filled.
    pub fn spare(&mut self) -> &mut [u8] {
        self.reply.sink().0
    }

    /// The first `bytes` bytes of [`spare`](Self::spare) are part of the reply now.
    pub fn advance(&mut self, bytes: usize) {
        self.reply.advance(bytes);
    }

    /// Adds bytes that live elsewhere. `/dev/fuse` sends them from there; a ring, which has one
    /// buffer for each entry, gets a copy.
    ///
    /// # Panics
    /// When `range` is not inside of the bytes; the program that asked then gets EIO.
    pub fn share(&mut self, owner: Shared, range: Range<usize>) {
        assert!(
            range.end <= (*owner).as_ref().len(),
            "shared range {range:?} is out of bounds"
        );
        self.reply.share(owner, range);
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
    /// Inode number that programs see.
    pub ino: u64,
    /// `DT_REG` and so on; 0 for unknown.
    pub kind: u8,
    /// Position of the entry after this one: what a later call begins with. Never 0.
    pub next: u64,
}

/// The answer to a reading of a directory.
pub struct DirectoryReply<'r, 'b> {
    reply: &'r mut Reply<'b>,
    /// Attributes are wanted, and last this many seconds.
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

    /// Adds an entry; false when it does not fit, and the call shall end. `found` is used when
    /// [`wants_attributes`](Self::wants_attributes); give `None` for "." and "..", and where the
    /// attributes cannot be had: the program then asks for that name alone.
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
        let mut reply = Reply::new(&mut buffer, None);
        assert!(reply.limit(10));
        let mut read = ReadReply::new(&mut reply);
        assert_eq!(read.spare().len(), 10);
        read.spare()[..4].copy_from_slice(b"abcd");
        read.advance(4);
        assert_eq!(read.room(), 6);
        read.advance(100);
        assert_eq!(reply.finish().length, 10);
        assert_eq!(&buffer[..4], b"abcd");
    }

    #[test]
    fn shared_pieces_keep_their_place_between_own_ones() {
        let (mut buffer, mut pieces) = ([0; 32], Vec::new());
        let mut reply = Reply::new(&mut buffer, Some(&mut pieces));
        let mut read = ReadReply::new(&mut reply);
        read.spare()[0] = b'a';
        read.advance(1);
        read.share(Arc::new(b"0123456789".to_vec()), 2..5);
        read.spare()[0] = b'z';
        read.advance(1);
        let finished = reply.finish();
        assert_eq!((finished.length, finished.tail), (5, 1..2));
        assert_eq!(&buffer[..2], b"az");
        assert!(matches!(&pieces[0], Piece::Own(r) if *r == (0..1)));
        assert!(matches!(&pieces[1], Piece::Shared(o, r) if &(**o).as_ref()[r.clone()] == b"234"));
    }

    #[test]
    fn a_transport_of_one_buffer_gets_shared_bytes_copied_and_cut_to_the_limit() {
        let mut buffer = [0; 32];
        let mut reply = Reply::new(&mut buffer, None);
        reply.limit(4);
        ReadReply::new(&mut reply).share(Arc::new(b"0123456789".to_vec()), 1..9);
        assert_eq!(reply.finish().length, 4);
        assert_eq!(&buffer[..4], b"1234");
    }

    #[test]
    fn entries_are_padded_to_eight_bytes_and_end_where_the_room_does() {
        let mut buffer = [0; 64];
        let mut reply = Reply::new(&mut buffer, None);
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
        assert_eq!(reply.finish().length, 64);
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
        let mut reply = Reply::new(&mut buffer, None);
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
