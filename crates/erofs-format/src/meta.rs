//! Reads metadata, checked against the size of its container.

use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use crate::{Error, Holder, Result, Source};

/// A container of metadata: the primary device, or the decoded metabox.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta<'a> {
    pub source: &'a dyn Source,
    pub holder: Holder,
    pub size: u64,
}

impl Meta<'_> {
    /// The container's name in messages.
    pub fn name(&self) -> &'static str {
        match self.holder {
            Holder::Device(_) => "primary device",
            Holder::Metabox => "metabox",
            Holder::Packed => "packed inode",
        }
    }

    pub fn is_metabox(&self) -> bool {
        self.holder == Holder::Metabox
    }

    /// Fills `buf`. A read beyond the end means that the image is corrupted; any other failure is
    /// an I/O error.
    pub fn read(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.check(offset, buf.len() as u64)?;
        let length = buf.len();
        let read = self.source.read(self.holder, buf, offset);
        read.map_err(|source| io_error(self.name(), offset, length, source))
    }

    /// Checks that the whole range exists.
    pub fn check(&self, offset: u64, length: u64) -> Result<()> {
        if offset
            .checked_add(length)
            .is_some_and(|end| end <= self.size)
        {
            return Ok(());
        }
        corrupted!(
            "metadata of {length} bytes at {offset:#x} extends beyond the end of the {} ({} bytes)",
            self.name(),
            self.size
        )
    }

    /// Reads one on-disk structure.
    pub fn get<T: FromBytes>(&self, offset: u64) -> Result<T> {
        // Larger than any structure of the format.
        let mut buf = [0; 256];
        let bytes = &mut buf[..size_of::<T>()];
        self.read(bytes, offset)?;
        Ok(structure(bytes))
    }
}

/// The error for a read that failed.
pub(crate) fn io_error(
    device: &'static str,
    offset: u64,
    length: usize,
    source: std::io::Error,
) -> Error {
    Error::Io {
        device,
        offset,
        length,
        source,
    }
}

/// The text before the first NUL.
pub(crate) fn until_nul(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&byte| byte == 0);
    &text[..end.unwrap_or(text.len())]
}

/// The structure that these bytes represent. Callers pass a constant number of bytes, which matches
/// the structure.
pub(crate) fn structure<T: FromBytes>(bytes: &[u8]) -> T {
    match T::read_from_bytes(bytes) {
        Ok(value) => value,
        Err(_) => unreachable!("{} bytes cannot be this structure", bytes.len()),
    }
}

/// The 32-bit number at byte `at`.
pub(crate) fn word(bytes: &[u8], at: usize) -> u32 {
    structure::<U32>(&bytes[at..at + 4]).get()
}

/// Bytes in a [`Window`]: 64 full index entries; no aligned pack or record straddles its end.
const WINDOW: usize = 512;

/// A small piece of metadata kept on the stack, so that adjacent index entries cost one read.
pub(crate) struct Window<'a> {
    meta: Meta<'a>,
    start: u64,
    len: usize,
    bytes: [u8; WINDOW],
}

impl<'a> Window<'a> {
    pub fn new(meta: Meta<'a>) -> Self {
        Window {
            meta,
            start: 0,
            len: 0,
            bytes: [0; WINDOW],
        }
    }

    /// Returns `length` bytes at `offset`. Index entries are aligned to their own size, so they
    /// never straddle two windows.
    pub fn get(&mut self, offset: u64, length: usize) -> Result<&[u8]> {
        let inside = offset >= self.start && offset - self.start + length as u64 <= self.len as u64;
        if !inside {
            self.fill(offset, length)?;
        }
        let at = (offset - self.start) as usize;
        Ok(&self.bytes[at..at + length])
    }

    fn fill(&mut self, offset: u64, length: usize) -> Result<()> {
        self.meta.check(offset, length as u64)?;
        let aligned = offset & !(WINDOW as u64 - 1);
        let fits = offset - aligned + length as u64 <= WINDOW as u64;
        let start = if fits { aligned } else { offset };
        let len = (self.meta.size - start).min(WINDOW as u64) as usize;
        self.len = 0;
        self.meta.read(&mut self.bytes[..len], start)?;
        (self.start, self.len) = (start, len);
        Ok(())
    }

    /// Reads one on-disk structure.
    pub fn structure<T: FromBytes>(&mut self, offset: u64) -> Result<T> {
        Ok(structure(self.get(offset, size_of::<T>())?))
    }
}
