//! Numbers in memory that two processes share.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;

use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};

use crate::mapping::Mapping;

/// Count of the numbers: 32 KiB.
pub const COUNT: usize = 4096;

const BYTES: usize = COUNT * size_of::<AtomicU64>();

/// The numbers, all of them 0 at first. What another process wrote is only a number.
#[derive(Debug)]
pub struct SharedWords(Mapping);

/// The file of new numbers, for [`SharedWords::map`]. Its size is fixed, so that no process can
/// take the memory from another one.
///
/// # Errors
/// No memory, or no descriptor is left.
pub fn create() -> io::Result<OwnedFd> {
    let file = memfd_create(
        "shared-words",
        MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING,
    )?;
    ftruncate(&file, BYTES as u64)?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file)
}

impl SharedWords {
    /// Maps the numbers of a file that [`create`] made.
    ///
    /// # Errors
    /// The kernel's refusal, or the file is another one.
    pub fn map(file: BorrowedFd<'_>) -> io::Result<Self> {
        let is_fixed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if !is_fixed || fstat(file)?.st_size != BYTES as i64 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(Self(Mapping::shared(file, BYTES)?))
    }

    /// The numbers.
    pub fn words(&self) -> &[AtomicU64; COUNT] {
        // SAFETY: mapped for as long as `self`, on a page, of a file which cannot shrink (sealed);
        // any bits are valid atomic numbers, and every process accesses them atomically.
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
