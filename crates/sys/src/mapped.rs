//! Reading a file through page faults, as programs do that map it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// A range of a file that is mapped for reading, and unmapped when dropped.
struct Mapping {
    start: *mut libc::c_void,
    length: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `read`, is mapped no more after this, and nothing else
        // knows of it.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

/// Copies bytes of a file out of a private mapping of it, one page fault after another. `offset`
/// is a multiple of the page size. The caller knows that the file is long enough and stays so: a
/// page that is beyond its end or cannot be read ends the process (SIGBUS), as for every program
/// that maps files.
pub fn read(file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    let length = buffer.len();
    if length == 0 {
        return Ok(());
    }
    let at = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    let (access, kind) = (libc::PROT_READ, libc::MAP_PRIVATE);
    // SAFETY: a new mapping at a place of the kernel's choice touches no memory that is in use.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            access,
            kind,
            file.as_raw_fd(),
            at,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let mapping = Mapping { start, length };
    // SAFETY: `length` bytes are mapped for reading at `start`, which `buffer` cannot overlap. No
    // reference to the mapping is made: another process may write to the file meanwhile.
    unsafe {
        std::ptr::copy_nonoverlapping(
            mapping.start.cast::<u8>().cast_const(),
            buffer.as_mut_ptr(),
            length,
        );
    };
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
