//! Numbers in memory that two processes share.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Count of the numbers that [`create`] makes: 16 KiB.
pub const COUNT: usize = 2048;
/// Least count of a file that can be mapped: older programs made one page of 4 KiB.
pub const LEAST: usize = 512;
/// Most.
const MOST: usize = 1 << 16;

const BYTES: usize = COUNT * size_of::<AtomicU64>();

/// The numbers, all of them 0 at first. What another process wrote is only a number.
#[derive(Debug)]
pub struct SharedWords(NonNull<[AtomicU64]>);

// SAFETY: atomic numbers in a mapping that one value owns, not tied to a thread.
unsafe impl Send for SharedWords {}
// SAFETY: shared references lead to atomic numbers only.
unsafe impl Sync for SharedWords {}

/// The file of new numbers, for [`SharedWords::map`]. Its size is fixed, so that no process can
/// take the memory from another one.
///
/// # Errors
/// No memory, or no descriptor is left.
pub fn create() -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a string that ends with a zero byte.
    let fd = unsafe { libc::memfd_create(c"shared-words".as_ptr(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the call takes two numbers.
    if unsafe { libc::ftruncate(fd, BYTES as libc::off_t) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the call takes numbers.
    if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

impl SharedWords {
    /// Maps the numbers of a file that [`create`] made.
    ///
    /// # Errors
    /// The kernel's refusal, or the file is another one.
    pub fn map(file: BorrowedFd<'_>) -> io::Result<Self> {
        let fd = file.as_raw_fd();
        // SAFETY: the call takes a descriptor and a number.
        let seals = unsafe { libc::fcntl(fd, libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let bytes = std::fs::File::from(file.try_clone_to_owned()?)
            .metadata()?
            .len();
        let count = usize::try_from(bytes).unwrap_or(0) / size_of::<AtomicU64>();
        if !(LEAST..=MOST).contains(&count) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (length, protection) = (
            count * size_of::<AtomicU64>(),
            libc::PROT_READ | libc::PROT_WRITE,
        );
        // SAFETY: a fresh mapping anywhere; nothing that exists is touched.
        let base = unsafe {
            let anywhere = std::ptr::null_mut();
            libc::mmap(anywhere, length, protection, libc::MAP_SHARED, fd, 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self(NonNull::slice_from_raw_parts(base, count)))
    }

    /// The numbers: as many as the file has.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped for as long as `self`, on a page, of a file which cannot shrink (sealed);
        // any bits are valid atomic numbers, and every process accesses them atomically.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for SharedWords {
    fn drop(&mut self) {
        let length = self.0.len() * size_of::<AtomicU64>();
        // SAFETY: mapped by `map` with this length; no reference outlives `self`.
        unsafe { libc::munmap(self.0.as_ptr().cast(), length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_show_the_same_numbers_and_the_file_cannot_shrink() {
        let file = create().unwrap();
        let ours = SharedWords::map(file.as_fd()).unwrap();
        let theirs = SharedWords::map(file.as_fd()).unwrap();
        ours.words()[COUNT - 1].store(7, Ordering::Relaxed);
        assert_eq!(theirs.words()[COUNT - 1].load(Ordering::Relaxed), 7);
        assert!(std::fs::File::from(file).set_len(0).is_err());
        let other = std::fs::File::open("/dev/null").unwrap();
        assert!(SharedWords::map(other.as_fd()).is_err());
    }
}
