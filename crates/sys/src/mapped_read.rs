//! Reading a file through a mapping, for tests of a filesystem.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr;

use rustix::mm::{MapFlags, ProtFlags};

use crate::mapping::Mapping;

/// Copies bytes of a file from a private mapping of it, one page fault after another, like programs
/// that map files. `offset` is a multiple of the page size. The caller must make sure that the file
/// is and stays long enough: access to a page that is beyond the file's end or cannot be read ends
/// the process (SIGBUS), as in every program that maps files.
pub fn read(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    let length = buffer.len();
    if length == 0 {
        return Ok(());
    }
    let (access, flags) = (ProtFlags::READ, MapFlags::PRIVATE);
    let mapping = Mapping::of_file(file.as_fd(), offset, length, access, flags)?;
    // SAFETY: `length` bytes are mapped for reading, which `buffer` cannot overlap. No reference to
    // the mapping is created, because another process may write to the file at the same time.
    unsafe { ptr::copy_nonoverlapping(mapping.at(0).as_ptr(), buffer.as_mut_ptr(), length) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_is_what_is_read() {
        let path = std::env::current_exe().unwrap();
        let whole = std::fs::read(&path).unwrap();
        let file = File::open(&path).unwrap();
        let mut buffer = vec![0; 10_000];
        read(&file, 4096, &mut buffer).unwrap();
        assert_eq!(buffer, whole[4096..14_096]);
        assert!(read(&file, 1, &mut buffer).is_err(), "not on a page");
    }
}
