//! The device that holds the hash blocks.

use std::io;

/// Random access to the hash device (or to the file that holds data and tree).
pub trait HashDevice {
    /// Fills `buf` from byte `offset`; a read that cannot fill it is an error.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Size of the device in bytes.
    fn size(&self) -> u64;
}

impl HashDevice for Vec<u8> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = usize::try_from(offset)
            .ok()
            .and_then(|start| self.get(start..)?.get(..buf.len()))
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }

    fn size(&self) -> u64 {
        self.len() as u64
    }
}
