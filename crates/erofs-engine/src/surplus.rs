//! What a small read decoded beyond its bytes, on its way to a page cache above.
//!
//! A pcluster decodes to 100 KiB and more, and a program that jumps about wants 4 of them. The
//! kernel's EROFS puts the others into the page cache at once, so that each pcluster is decoded for
//! the first read of it only. Behind FUSE the page cache is there as well, but has to be told.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use erofs_format::{Inode, Nid};

use crate::pcluster::Decoded;

/// Reads of up to this many bytes have a surplus: longer ones belong to a stream, whose next read
/// takes what this one left.
pub(crate) const SMALL_READ: usize = 64 << 10;

/// A page cache above the engine.
pub trait PageCache: Send + Sync + Debug {
    /// Whether it would take so many bytes now. If not, the read decodes no more than it needs.
    fn has_room(&self, bytes: usize) -> bool;

    /// Takes bytes, to be put in place when there is time. Called by threads that decode, which do
    /// not wait.
    fn store(&self, surplus: Surplus);
}

/// Decoded bytes that nobody asked for yet.
#[derive(Debug)]
pub struct Surplus {
    nid: Nid,
    logical: u64,
    /// Bytes inside of the file: a pcluster may decode to more.
    length: usize,
    reaches_end: bool,
    served: Range<usize>,
    decoded: Arc<Decoded>,
}

impl Surplus {
    pub(crate) fn new(
        inode: &Inode,
        logical: u64,
        served: Range<usize>,
        decoded: Arc<Decoded>,
    ) -> Self {
        let inside = inode.size.saturating_sub(logical);
        let decoded_length = decoded.bytes().len();
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

    /// The file they belong to.
    pub fn nid(&self) -> Nid {
        self.nid
    }

    /// Bytes of memory that it holds until it is dropped.
    pub fn memory(&self) -> usize {
        self.decoded.memory()
    }

    /// The two stretches before and behind the read, each with the offset in the file where it
    /// begins; either may be empty.
    pub fn parts(&self) -> [(u64, &[u8]); 2] {
        let bytes = self.bytes();
        let Range { start, end } = self.served;
        [
            (self.logical, &bytes[..start]),
            (self.logical + end as u64, &bytes[end..]),
        ]
    }

    fn bytes(&self) -> &[u8] {
        &self.decoded.bytes()[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use page_pool::{PagePool, PoolOptions, Wait};

    #[test]
    fn a_surplus_is_what_lies_around_the_read() {
        let pool = PagePool::new(&PoolOptions::default()).unwrap();
        let mut bytes = pool.alloc(4, Wait::May).unwrap();
        bytes.copy_from_slice(b"abcd");
        let decoded = Arc::new(Decoded::new(bytes));
        let surplus = Surplus {
            nid: 7,
            logical: 100,
            length: 4,
            reaches_end: false,
            served: 1..3,
            decoded,
        };
        assert_eq!(surplus.parts(), [(100, &b"a"[..]), (103, &b"d"[..])]);
        assert_eq!(pool.stats().in_use_pages, 1);
        drop(surplus);
        assert_eq!(pool.stats().in_use_pages, 0);
    }
}
