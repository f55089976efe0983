//! Random access to the bytes of an image.

use std::io;
use std::sync::Arc;

/// Random access to a run of bytes of a known size: a device, or the decoded content of an inode.
pub trait ReadAt: Send + Sync + std::fmt::Debug {
    /// Fills `buf` from byte `offset`. A read that cannot be filled is an error
    /// ([`io::ErrorKind::UnexpectedEof`]), never a short success.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Size in bytes.
    fn size(&self) -> u64;
}

impl ReadAt for std::fs::File {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, buf, offset)
    }

    /// Size of a regular file, or of a block device (whose metadata says 0). One system call or
    /// more: wrap the file if this is called often.
    fn size(&self) -> u64 {
        use std::io::Seek;
        match self.metadata() {
            Ok(metadata) if metadata.is_file() => metadata.len(),
            // Nothing else uses the position: all reads here name their offset.
            _ => (&*self).seek(io::SeekFrom::End(0)).unwrap_or(0),
        }
    }
}

impl ReadAt for [u8] {
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

impl ReadAt for Vec<u8> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_slice().read_exact_at(buf, offset)
    }

    fn size(&self) -> u64 {
        self.len() as u64
    }
}

impl<T: ReadAt + ?Sized> ReadAt for Arc<T> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(buf, offset)
    }

    fn size(&self) -> u64 {
        (**self).size()
    }
}

/// An image inside of a bigger file: everything from byte `offset` on.
#[derive(Clone, Debug)]
pub struct Window {
    inner: Arc<dyn ReadAt>,
    offset: u64,
    size: u64,
}

impl Window {
    /// The bytes of `inner` from `offset` to its end (nothing, if `offset` is beyond it).
    pub fn new(inner: Arc<dyn ReadAt>, offset: u64) -> Window {
        let size = inner.size().saturating_sub(offset);
        Window {
            inner,
            offset,
            size,
        }
    }
}

impl ReadAt for Window {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.inner.read_exact_at(buf, self.offset + offset)
    }

    fn size(&self) -> u64 {
        self.size
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

    #[test]
    fn a_window_shows_the_bytes_from_its_offset_and_no_others() {
        let window = Window::new(Arc::new(vec![1u8, 2, 3, 4]), 2);
        let mut buf = [0; 2];
        window.read_exact_at(&mut buf, 0).unwrap();
        assert_eq!((window.size(), buf), (2, [3, 4]));
        assert!(window.read_exact_at(&mut buf, 1).is_err());
        assert!(window.read_exact_at(&mut buf, u64::MAX - 1).is_err());
        assert_eq!(Window::new(Arc::new(vec![1u8]), 9).size(), 0);
    }
}
