//! Numbers in memory that two processes share.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};

use crate::mapping::Mapping;

/// `COUNT` numbers, initially all 0. Values written by another process are not trusted.
#[derive(Debug)]
pub struct SharedWords<const COUNT: usize>(Mapping);

impl<const COUNT: usize> SharedWords<COUNT> {
    const BYTES: usize = COUNT * size_of::<AtomicU64>();

    /// Creates a file of new numbers, which processes then [`map`](Self::map). The file's size is
    /// fixed, so that no process can truncate the memory of another.
    ///
    /// # Errors
    /// No memory or no descriptor is left.
    pub fn create() -> io::Result<OwnedFd> {
        let file = memfd_create(
            "shared-words",
            MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
        )?;
        ftruncate(&file, Self::BYTES as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file)
    }

    /// Maps the numbers of a file from [`create`](Self::create).
    ///
    /// # Errors
    /// The kernel refuses the mapping, or `file` has a different size.
    pub fn map(file: BorrowedFd<'_>) -> io::Result<Self> {
        let is_fixed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !is_fixed || fstat(file)?.st_size != Self::BYTES as i64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self(Mapping::shared(file, Self::BYTES)?))
    }

    /// The numbers.
    pub fn words(&self) -> &[AtomicU64; COUNT] {
        // SAFETY: mapped for as long as `self` lives, page-aligned, from a file that is sealed
        // against shrinking; any bits are valid atomic numbers, and every process accesses them
        // atomically.
        unsafe { self.0.at(0).cast().as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_show_the_same_numbers_and_the_file_cannot_shrink() {
        type Words = SharedWords<4096>;
        const COUNT: usize = 4096;
        let file = Words::create().unwrap();
        let ours = Words::map(file.as_fd()).unwrap();
        let theirs = Words::map(file.as_fd()).unwrap();
        ours.words()[COUNT - 1].store(7, Ordering::Relaxed);
        assert_eq!(theirs.words()[COUNT - 1].load(Ordering::Relaxed), 7);
        assert!(std::fs::File::from(file).set_len(0).is_err());
        let other = std::fs::File::open("/dev/null").unwrap();
        assert!(Words::map(other.as_fd()).is_err());
        let longer = SharedWords::<8192>::create().unwrap();
        assert!(Words::map(longer.as_fd()).is_err());
    }
}
