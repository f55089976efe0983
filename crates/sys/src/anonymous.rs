//! Memory that belongs to no file.

use std::io;
use std::ptr::NonNull;

/// Anonymous memory, mapped when it is first touched, zero until then.
pub(crate) struct Memory {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: it is memory owned by one value, not tied to a thread.
unsafe impl Send for Memory {}

impl Memory {
    pub(crate) fn new(length: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping anywhere; nothing that exists is touched.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, length })
    }

    pub(crate) fn length(&self) -> usize {
        self.length
    }

    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(
            offset < self.length,
            "offset {offset} is outside of {} bytes",
            self.length
        );
        // SAFETY: inside of the mapping, as was just asserted.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length. Its owners
        // end all use of its parts, by the kernel or by references, before they drop it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
