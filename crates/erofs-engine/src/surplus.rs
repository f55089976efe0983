//! What a small read decoded beyond its bytes, on its way to a page cache above.
//!
//! A pcluster decodes to 100 KiB and more, and a program that jumps about wants 4 of them. The
//! kernel's EROFS puts the others into the page cache at once, so that each pcluster is decoded for
//! the first read of it only. Behind FUSE the page cache is there as well, but has to be told.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use erofs_format::{Inode, Nid};
use page_pool::PageBuf;

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

/// Decoded bytes that nobody asked for yet. Dropped, their memory serves the next pcluster.
#[derive(Debug)]
pub struct Surplus {
    nid: Nid,
    logical: u64,
    /// Bytes inside of the file: a pcluster may decode to more.
    length: usize,
    reaches_end: bool,
    served: Range<usize>,
    /// Taken out when dropped.
    decoded: Option<Arc<Decoded>>,
    spares: Arc<Spares>,
}

impl Surplus {
    pub(crate) fn new(
        inode: &Inode,
        logical: u64,
        served: Range<usize>,
        decoded: Arc<Decoded>,
        spares: Arc<Spares>,
    ) -> Self {
        let inside = inode.size.saturating_sub(logical);
        let decoded_length = decoded.bytes().len();
        Self {
            nid: inode.nid,
            logical,
            length: usize::try_from(inside).map_or(decoded_length, |n| n.min(decoded_length)),
            reaches_end: inside <= decoded_length as u64,
            served,
            decoded: Some(decoded),
            spares,
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
        self.decoded.as_ref().map_or(0, |decoded| decoded.memory())
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
        let decoded = self.decoded.as_deref().map_or(&[][..], Decoded::bytes);
        &decoded[..self.length.min(decoded.len())]
    }
}

impl Drop for Surplus {
    fn drop(&mut self) {
        if let Some(decoded) = self.decoded.take().and_then(Arc::into_inner) {
            self.spares.put(decoded.into_buffer());
        }
    }
}

/// Buffers between two uses: taking one spares the system an allocation and this process the page
/// faults.
#[derive(Debug)]
pub(crate) struct Spares {
    /// I. At most so many.
    most: usize,
    /// L.
    free: Mutex<Vec<PageBuf>>,
}

impl Default for Spares {
    fn default() -> Self {
        Self {
            most: Self::MOST,
            free: Mutex::default(),
        }
    }
}

impl Spares {
    /// Buffers kept: one for each of a few threads that decode at once.
    const MOST: usize = 4;
    /// Larger ones are rare and go back at once. Together: at most 4 MiB.
    const LARGEST: usize = 1 << 20;

    /// For those who want nothing kept between two uses but what the page pool keeps.
    pub(crate) fn none() -> Self {
        Self {
            most: 0,
            free: Mutex::default(),
        }
    }

    /// The smallest buffer that holds `bytes`.
    pub(crate) fn take(&self, bytes: usize) -> Option<PageBuf> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |(index, buffer): (usize, &PageBuf)| {
            let capacity = buffer.capacity();
            (capacity >= bytes).then_some((capacity, index))
        };
        let (_, index) = free.iter().enumerate().filter_map(fits).min()?;
        let mut buffer = free.swap_remove(index);
        buffer.resize(bytes);
        Some(buffer)
    }

    /// Keeps a buffer, in place of the smallest one if there are enough.
    pub(crate) fn put(&self, buffer: PageBuf) {
        if buffer.capacity() > Self::LARGEST || self.most == 0 {
            return;
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.push(buffer);
        if free.len() > self.most {
            let smallest = free.iter().enumerate().min_by_key(|(_, b)| b.capacity());
            let gone = smallest
                .map(|(index, _)| index)
                .map(|i| free.swap_remove(i));
            drop(free);
            // Unmaps memory: not under the lock.
            drop(gone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use page_pool::{PagePool, PoolOptions, Wait};

    fn buffer(bytes: usize) -> PageBuf {
        let options = PoolOptions {
            reserved_pages: 0,
            ..PoolOptions::default()
        };
        let pool = PagePool::new(&options).unwrap();
        pool.alloc(bytes, Wait::May).unwrap()
    }

    #[test]
    fn nothing_is_kept_where_nothing_shall_be() {
        let spares = Spares::none();
        spares.put(buffer(4096));
        assert!(spares.take(1).is_none());
    }

    #[test]
    fn the_smallest_buffer_that_fits_is_used_again() {
        let spares = Spares::default();
        for pages in [8, 2, 4] {
            spares.put(buffer(pages * 4096));
        }
        let taken = spares.take(3 * 4096).unwrap();
        assert_eq!((taken.capacity(), taken.len()), (4 * 4096, 3 * 4096));
        assert!(spares.take(9 * 4096).is_none());
    }

    #[test]
    fn of_too_many_the_smallest_goes() {
        let spares = Spares::default();
        (1..=5).for_each(|pages| spares.put(buffer(pages * 4096)));
        assert_eq!(spares.take(1).unwrap().capacity(), 2 * 4096);
        spares.put(buffer(Spares::LARGEST + 4096));
        assert!(spares.take(Spares::LARGEST).is_none());
    }

    #[test]
    fn a_surplus_is_what_lies_around_the_read() {
        let spares = Arc::new(Spares::default());
        let mut bytes = buffer(4096);
        bytes[..4].copy_from_slice(b"abcd");
        let decoded = Arc::new(Decoded::new(bytes, 4));
        let surplus = Surplus {
            nid: 7,
            logical: 100,
            length: 4,
            reaches_end: false,
            served: 1..3,
            decoded: Some(decoded),
            spares: spares.clone(),
        };
        assert_eq!(surplus.parts(), [(100, &b"a"[..]), (103, &b"d"[..])]);
        assert!(spares.take(1).is_none());
        drop(surplus);
        assert!(spares.take(1).is_some(), "its memory serves again");
    }
}
