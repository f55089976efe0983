//! Anonymous memory as owned runs of bytes.
//!
//! A [`Run`] exclusively owns its bytes. It can be split and joined again, so an allocator can be
//! built on top without unsafe code: two runs can never overlap, because a run only comes from
//! mapping new memory, splitting a run, or joining two neighbours. The memory is unmapped with the
//! last run of its mapping.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::mm::{Advice, MlockFlags, madvise, mlock_with};

use crate::mapping::Mapping;

/// The page size of runs, which start and are split only at multiples of this size.
pub const PAGE_SIZE: usize = 4096;

/// Makes the C library serve all threads from one heap. By default, with one heap per thread,
/// memory freed by one thread is not available to the others. Call this before threads are created;
/// it does nothing if the library has no such setting.
pub fn share_one_heap() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: mallopt only sets a number of the allocator, which takes its own lock.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// A contiguous, exclusively owned piece of anonymous memory. It is zeroed when mapped.
#[derive(Debug)]
pub struct Run {
    mapping: Arc<Mapping>,
    /// Offset in the mapping, in bytes.
    offset: usize,
    /// Length in bytes, never 0.
    length: usize,
}

impl Run {
    /// Maps `pages` new pages of 4 KiB. They are allocated when first touched.
    pub fn map(pages: usize) -> io::Result<Run> {
        let length = pages.checked_mul(PAGE_SIZE).filter(|&length| length > 0);
        let length = length.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Run {
            mapping: Arc::new(Mapping::anonymous(length)?),
            offset: 0,
            length,
        })
    }

    /// Index of the run's first page within the mapping.
    pub fn first_page(&self) -> usize {
        self.offset / PAGE_SIZE
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.length / PAGE_SIZE
    }

    /// Keeps the first `pages` pages and returns the others.
    ///
    /// # Panics
    /// If one of the two would be empty.
    pub fn split_off(&mut self, pages: usize) -> Run {
        assert!(
            0 < pages && pages < self.pages(),
            "split of {} pages at {pages}",
            self.pages()
        );
        let at = pages * PAGE_SIZE;
        let mapping = Arc::clone(&self.mapping);
        let rest = Run {
            mapping,
            offset: self.offset + at,
            length: self.length - at,
        };
        self.length = at;
        rest
    }

    /// Whether `next` directly follows this run in the same mapping.
    pub fn is_followed_by(&self, next: &Run) -> bool {
        Arc::ptr_eq(&self.mapping, &next.mapping) && self.offset + self.length == next.offset
    }

    /// Joins two neighbours into one run; returns both if they are not neighbours.
    pub fn join(mut self, next: Run) -> Result<Run, (Run, Run)> {
        if !self.is_followed_by(&next) {
            return Err((self, next));
        }
        self.length += next.length;
        Ok(self)
    }

    /// Allocates the memory now instead of at the first touch.
    pub fn populate(&mut self) -> io::Result<()> {
        let (start, advice) = (self.as_mut_ptr().cast(), Advice::LinuxPopulateWrite);
        // SAFETY: the range is ours alone, and `&mut self` shows that no other thread reads its
        // bytes.
        match unsafe { madvise(start, self.length, advice) } {
            // Linux before 5.14 does not support the advice.
            Err(Errno::INVAL) => self.chunks_mut(PAGE_SIZE).for_each(|page| page[0] = 0),
            outcome => outcome?,
        }
        Ok(())
    }

    /// Locks the pages in memory until the mapping ends, including pages that are touched later.
    /// Locking touches no page.
    pub fn lock_on_fault(&mut self) -> io::Result<()> {
        let start = self.as_mut_ptr().cast();
        // SAFETY: the range is our own live mapping; locking changes no byte of it.
        Ok(unsafe { mlock_with(start, self.length, MlockFlags::ONFAULT) }?)
    }

    fn start(&self) -> *mut u8 {
        self.mapping.at(self.offset).as_ptr()
    }
}

impl Deref for Run {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are mapped readable, initialised (zero or written), owned by this run
        // alone, and live as long as it holds the mapping.
        unsafe { std::slice::from_raw_parts(self.start(), self.length) }
    }
}

impl DerefMut for Run {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for deref; `&mut self` makes the slice the only way to the bytes.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fresh_memory_is_zero_and_writable() {
        let mut run = Run::map(3).unwrap();
        assert_eq!(run.len(), 3 * PAGE_SIZE);
        assert!(run.iter().all(|&byte| byte == 0));
        run[3 * PAGE_SIZE - 1] = 7;
        assert_eq!(run[3 * PAGE_SIZE - 1], 7);
    }

    #[test]
    fn pieces_do_not_overlap_and_join_again() {
        let mut low = Run::map(4).unwrap();
        let mut high = low.split_off(1);
        low.fill(1);
        high.fill(2);
        assert!(low.iter().all(|&byte| byte == 1));
        assert_eq!((low.pages(), high.pages(), high.first_page()), (1, 3, 1));
        let whole = low.join(high).unwrap();
        assert_eq!(whole.pages(), 4);
        assert_eq!((whole[PAGE_SIZE - 1], whole[PAGE_SIZE]), (1, 2));
    }

    #[test]
    fn strangers_and_the_wrong_order_do_not_join() {
        let (one, two) = (Run::map(1).unwrap(), Run::map(1).unwrap());
        assert!(one.join(two).is_err());
        let mut low = Run::map(2).unwrap();
        let high = low.split_off(1);
        let (high, low) = high.join(low).unwrap_err();
        assert!(low.join(high).is_ok());
    }

    #[test]
    fn a_piece_outlives_the_rest_of_its_mapping() {
        let mut low = Run::map(2).unwrap();
        let mut high = low.split_off(1);
        drop(low);
        high.fill(9);
        assert_eq!(high[0], 9);
    }

    #[test]
    fn populated_memory_is_zero_and_writable() {
        let mut run = Run::map(2).unwrap();
        run.populate().unwrap();
        assert!(run.iter().all(|&byte| byte == 0));
        run.fill(5);
        assert!(run.iter().all(|&byte| byte == 5));
    }

    #[test]
    fn nothing_and_too_much_are_errors() {
        assert!(Run::map(0).is_err());
        assert!(Run::map(usize::MAX / PAGE_SIZE).is_err());
        assert!(Run::map(usize::MAX).is_err());
    }
}
