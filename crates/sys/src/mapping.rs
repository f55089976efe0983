//! Memory mappings, all of which are created and removed here.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// A mapping with one owner, unmapped when dropped. The owner decides which pointers into the
/// mapping may exist, and ends their use first.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: an address and a length, not tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared Mapping offers nothing but addresses.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Anonymous memory, zeroed. It is allocated when it is first touched.
    pub(crate) fn anonymous(length: usize) -> io::Result<Self> {
        let (access, flags) = (read_write(), MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping anywhere; nothing that exists is touched.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), length, access, flags) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }

    /// The first bytes of a file, for reading and writing, shared with everything that maps it.
    pub(crate) fn shared(file: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        Self::of_file(file, 0, length, read_write(), MapFlags::SHARED)
    }

    pub(crate) fn of_file(
        file: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        access: ProtFlags,
        flags: MapFlags,
    ) -> io::Result<Self> {
        // SAFETY: as above.
        let start = unsafe { mmap(ptr::null_mut(), length, access, flags, file, offset) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The address of a byte.
    ///
    /// # Panics
    /// If the offset is outside of the mapping.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        let length = self.length;
        assert!(
            offset < length,
            "offset {offset} is outside of {length} bytes"
        );
        // SAFETY: inside the mapping, as was just asserted.
        unsafe { self.start.add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was created with this start and length, and its owner has ended all
        // use of it.
        let outcome = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
        debug_assert_eq!(outcome, Ok(()));
    }
}

fn read_write() -> ProtFlags {
    ProtFlags::READ | ProtFlags::WRITE
}
