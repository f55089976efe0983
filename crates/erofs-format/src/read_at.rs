//! Random access to the bytes of an image.

use std::io;
use std::sync::Arc;

/// Random access to bytes of a known size: a device, or the decoded content of an inode.
pub trait ReadAt: std::fmt::Debug {
    /// Fills `buf` from byte `offset`. A read that cannot fill `buf` is an error
    /// ([`io::ErrorKind::UnexpectedEof`]), never a short success.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Size in bytes.
    fn size(&self) -> u64;
}

/// A container of image bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A device; 0 is the primary one.
    Device(u16),
    /// The decoded content of the metabox inode.
    Metabox,
    /// The decoded content of the packed inode.
    Packed,
}

/// A source of an image's bytes for one caller: a request with its limits, or plain files.
pub trait Source: std::fmt::Debug {
    /// Fills `buf` from byte `offset`, or fails.
    fn read(&self, from: Holder, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Size in bytes; `None` if there is no such container, or if it cannot be read yet.
    fn size(&self, of: Holder) -> Option<u64>;
}

/// Readers of a whole image, for callers without requests.
#[derive(Clone, Debug, Default)]
pub struct Readers {
    /// The devices, the primary one first.
    pub devices: Vec<Arc<dyn ReadAt + Send + Sync>>,
    /// The metabox, which requires a decoder.
    pub metabox: Option<Arc<dyn ReadAt + Send + Sync>>,
    /// The packed inode, which also requires a decoder.
    pub packed: Option<Arc<dyn ReadAt + Send + Sync>>,
}

impl Readers {
    /// Creates readers of the devices, without the metabox and the packed inode.
    pub fn of(devices: Vec<Arc<dyn ReadAt + Send + Sync>>) -> Self {
        Self {
            devices,
            ..Self::default()
        }
    }

    fn get(&self, holder: Holder) -> Option<&Arc<dyn ReadAt + Send + Sync>> {
        match holder {
            Holder::Device(number) => self.devices.get(usize::from(number)),
            Holder::Metabox => self.metabox.as_ref(),
            Holder::Packed => self.packed.as_ref(),
        }
    }
}

impl Source for Readers {
    fn read(&self, from: Holder, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let reader = self.get(from).ok_or(io::ErrorKind::NotFound)?;
        reader.read_exact_at(buf, offset)
    }

    fn size(&self, of: Holder) -> Option<u64> {
        Some(self.get(of)?.size())
    }
}

impl ReadAt for Vec<u8> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let bytes = start.and_then(|start| self.get(start..)?.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn size(&self) -> u64 {
        self.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_beyond_the_end_is_an_error_and_not_short() {
        let bytes = vec![1u8, 2, 3, 4];
        let mut buf = [0; 3];
        assert!(bytes.read_exact_at(&mut buf, 1).is_ok());
        assert_eq!(buf, [2, 3, 4]);
        let error = bytes.read_exact_at(&mut buf, 2).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(bytes.read_exact_at(&mut buf, u64::MAX).is_err());
    }
}
