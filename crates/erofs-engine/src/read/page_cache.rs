//! The rest of a pcluster that a small read decoded, and the page cache that receives it.
//!
//! A pcluster decodes to 100 KiB or more, of which a random reader wants 4 KiB. The kernel's EROFS
//! immediately puts the rest into the page cache, so it decodes each pcluster only for its first
//! read. With FUSE there is a page cache as well, but the server has to store pages in it
//! explicitly.

use std::fmt::Debug;
use std::ops::Range;

use erofs_format::{Inode, Nid};

use crate::read::claim::Decoded;

/// Maximum length of a read whose remainder is written to the page cache. A longer read belongs to
/// a stream, whose next read takes the rest.
pub(crate) const SMALL_READ: usize = 64 << 10;

/// Writes decoded bytes into the page cache of the engine's caller (for FUSE: `FUSE_NOTIFY_STORE`).
pub trait PageCacheWriter: Send + Sync + Debug {
    /// Whether the page cache currently accepts `bytes` more bytes of a file. If not, the read is
    /// served as if there were no writer.
    fn has_room(&self, file: Nid, bytes: usize) -> bool;

    /// Whether small reads of a file are at random places, so that the bytes around them are not
    /// wanted soon.
    fn is_random(&self, _file: Nid) -> bool {
        false
    }

    /// Queues a remainder to be written later. Decoding threads call this, so it must not block.
    fn store(&self, remainder: Remainder);
}

/// The decoded bytes of a pcluster around those that a read asked for.
#[derive(Debug)]
pub struct Remainder {
    nid: Nid,
    logical: u64,
    /// Number of bytes inside the file: a pcluster may decode to more.
    length: usize,
    reaches_end: bool,
    served: Range<usize>,
    decoded: Decoded,
}

impl Remainder {
    pub(crate) fn new(inode: &Inode, logical: u64, served: Range<usize>, decoded: Decoded) -> Self {
        let inside = inode.size.saturating_sub(logical);
        let decoded_length = decoded.len();
        Self {
            nid: inode.nid,
            logical,
            length: usize::try_from(inside).map_or(decoded_length, |n| n.min(decoded_length)),
            reaches_end: inside <= decoded_length as u64,
            served,
            decoded,
        }
    }

    /// Whether the second of [`parts`](Self::parts) ends where the file does.
    pub fn reaches_end(&self) -> bool {
        self.reaches_end
    }

    /// The file that the bytes belong to.
    pub fn nid(&self) -> Nid {
        self.nid
    }

    /// Bytes of memory that this remainder holds until it is dropped.
    pub fn memory(&self) -> usize {
        self.decoded.capacity()
    }

    /// The bytes before and after the read, each with its offset in the file; either may be empty.
    pub fn parts(&self) -> [(u64, &[u8]); 2] {
        let bytes = &self.decoded[..self.length];
        let Range { start, end } = self.served;
        [
            (self.logical, &bytes[..start]),
            (self.logical + end as u64, &bytes[end..]),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use page_pool::{PagePool, PoolOptions};
    use std::sync::Arc;

    #[test]
    fn the_remainder_is_what_lies_around_the_read() {
        let pool = PagePool::new(&PoolOptions::default()).unwrap();
        let mut bytes = pool.alloc(4).unwrap();
        bytes.copy_from_slice(b"abcd");
        let decoded = Arc::new(bytes);
        let remainder = Remainder {
            nid: 7,
            logical: 100,
            length: 4,
            reaches_end: false,
            served: 1..3,
            decoded,
        };
        assert_eq!(remainder.parts(), [(100, &b"a"[..]), (103, &b"d"[..])]);
        assert_eq!(pool.stats().in_use_pages, 1);
        drop(remainder);
        assert_eq!(pool.stats().in_use_pages, 0);
    }
}
