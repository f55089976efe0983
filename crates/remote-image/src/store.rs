//! The blocks of an image in two sparse files: their bytes, and a checksum for each.
//!
//! The map has 8 bytes for each block, little-endian: 0 means that the block is absent, anything
//! else is the checksum of its bytes. The bytes are written first, so after a crash or on a full
//! disk a block is absent or does not match its checksum. Several processes may write: the entries
//! of two blocks share no byte, and all writers of a block write the same bytes.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use twox_hash::XxHash3_64;

/// The size of a block in bytes. Larger blocks would fetch more bytes that no launch reads
/// (docs/notebook/remote.md).
pub const BLOCK: u64 = 16 << 10;

/// Bytes per read of the map.
const PART: usize = 64 << 10;

/// The blocks that a range of bytes touches.
pub fn blocks(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK..range.end.div_ceil(BLOCK)
}

/// The two files, and the length of the image in bytes.
#[derive(Debug)]
pub struct Store {
    data: File,
    map: File,
    length: u64,
}

impl Store {
    /// A store with these files and the image's length in bytes.
    pub fn new(data: OwnedFd, map: OwnedFd, length: u64) -> Store {
        let (data, map) = (data.into(), map.into());
        Store { data, map, length }
    }

    /// The data file, with the bytes.
    pub fn data(&self) -> &File {
        &self.data
    }

    /// The map file, with the checksums.
    pub fn map(&self) -> &File {
        &self.map
    }

    /// The length of the image in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The range of a block in the image; the last one may be short.
    pub fn range(&self, block: u64) -> Range<u64> {
        block * BLOCK..((block + 1) * BLOCK).min(self.length)
    }

    /// The bytes of a block that is present and matches its checksum.
    pub fn read_block(&self, block: u64) -> io::Result<Option<Vec<u8>>> {
        let entry = self.entry(block)?;
        if entry == 0 {
            return Ok(None);
        }
        let range = self.range(block);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let whole = read_exact(&self.data, &mut bytes, range.start)?;
        Ok((whole && checksum(&bytes) == entry).then_some(bytes))
    }

    /// Whether a block is in the map.
    pub fn has_block(&self, block: u64) -> io::Result<bool> {
        Ok(self.entry(block)? != 0)
    }

    /// Reads bytes at an offset without checking them; returns false if the file is too short.
    pub fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<bool> {
        read_exact(&self.data, bytes, offset)
    }

    /// The last change time of the data file, as a hash.
    pub(crate) fn changed(&self) -> io::Result<u32> {
        let stat = rustix::fs::fstat(&self.data)?;
        let time = (stat.st_ctime as u64).wrapping_mul(1_000_000_000) + stat.st_ctime_nsec as u64;
        Ok((time ^ time >> 32) as u32)
    }

    /// Writes the bytes of a block, then its checksum.
    pub fn write_block(&self, block: u64, bytes: &[u8]) -> io::Result<()> {
        self.data.write_all_at(bytes, block * BLOCK)?;
        self.note(block, checksum(bytes))
    }

    /// Marks a block as absent. Its bytes stay: other readers may have compared the checksum
    /// already.
    pub fn forget_block(&self, block: u64) -> io::Result<()> {
        self.note(self.count(), 0)?;
        self.note(block, 0)
    }

    /// Marks all blocks that do not match their checksums as absent. Returns whether there were
    /// such blocks.
    pub fn forget_damaged(&self) -> io::Result<bool> {
        let mut is_damaged = false;
        for block in 0..self.count() {
            if self.has_block(block)? && self.read_block(block)?.is_none() {
                self.forget_block(block)?;
                is_damaged = true;
            }
        }
        Ok(is_damaged)
    }

    /// Marks a block as absent and frees its space.
    pub fn remove_block(&self, block: u64) -> io::Result<()> {
        use rustix::fs::{FallocateFlags, fallocate};
        self.forget_block(block)?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.data, flags, block * BLOCK, BLOCK)?)
    }

    /// Marks all blocks as absent, as [`forget_block`](Self::forget_block) does.
    pub fn forget_all(&self) -> io::Result<()> {
        self.map.set_len(0)
    }

    /// Records that the bytes of all blocks match the image's digest, in an entry after the last
    /// block's.
    pub fn mark_verified(&self) -> io::Result<()> {
        self.note(self.count(), 1)
    }

    /// Whether [`mark_verified`](Self::mark_verified) was called for these files.
    pub fn is_verified(&self) -> bool {
        self.has_block(self.count()).unwrap_or(false)
    }

    fn count(&self) -> u64 {
        self.length.div_ceil(BLOCK)
    }

    /// Whether the map has all blocks.
    pub fn is_whole(&self) -> bool {
        self.present().is_ok_and(|bytes| bytes == self.length)
    }

    /// Records that all bytes in the data file are those of the image.
    pub(crate) fn adopt(&self) -> io::Result<()> {
        let mut map = Vec::with_capacity(8 * self.count() as usize);
        let mut bytes = vec![0; BLOCK as usize];
        for block in 0..self.count() {
            let range = self.range(block);
            let bytes = &mut bytes[..(range.end - range.start) as usize];
            self.data.read_exact_at(bytes, range.start)?;
            map.extend(checksum(bytes).to_le_bytes());
        }
        self.map.write_all_at(&map, 0)?;
        self.mark_verified()
    }

    /// Counts the bytes of the blocks in the map.
    pub fn present(&self) -> io::Result<u64> {
        let length = self.map.metadata()?.len().min(8 * self.count());
        let (mut part, mut present) = (vec![0; PART], 0);
        // The server chooses the length, so most of the map may be a hole.
        let mut position = self.next_data(0, length)?;
        while position < length {
            let part = &mut part[..PART.min((length - position) as usize)];
            if !read_exact(&self.map, part, position)? {
                break;
            }
            let first = position / 8;
            for (block, entry) in (first..).zip(part.chunks_exact(8)) {
                if entry != [0; 8] {
                    let range = self.range(block);
                    present += range.end - range.start;
                }
            }
            position = self.next_data(position + part.len() as u64, length)?;
        }
        Ok(present)
    }

    /// Where the next entry that is not in a hole begins, or `length`.
    fn next_data(&self, position: u64, length: u64) -> io::Result<u64> {
        if position >= length {
            return Ok(length);
        }
        match rustix::fs::seek(&self.map, SeekFrom::Data(position)) {
            Ok(data) => Ok(data / 8 * 8),
            Err(Errno::NXIO) => Ok(length),
            // The filesystem does not support holes.
            Err(Errno::INVAL) => Ok(position),
            Err(error) => Err(error.into()),
        }
    }

    fn note(&self, block: u64, entry: u64) -> io::Result<()> {
        self.map.write_all_at(&entry.to_le_bytes(), block * 8)
    }

    fn entry(&self, block: u64) -> io::Result<u64> {
        let mut entry = [0; 8];
        read_exact(&self.map, &mut entry, block * 8)?;
        Ok(u64::from_le_bytes(entry))
    }
}

/// The checksum of a block; never 0, which stands for an absent block.
fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes).max(1)
}

/// Reads all of `bytes`; returns false if the file is too short.
fn read_exact(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<bool> {
    match file.read_exact_at(bytes, offset) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(length: u64) -> Store {
        let file = || OwnedFd::from(tempfile::tempfile().unwrap());
        Store::new(file(), file(), length)
    }

    #[test]
    fn a_block_is_there_once_it_was_written_and_only_whole() {
        let store = store(BLOCK + 5);
        assert_eq!(store.read_block(1).unwrap(), None);
        store.write_block(1, b"abcde").unwrap();
        assert_eq!(store.read_block(1).unwrap().unwrap(), b"abcde");
        assert_eq!(
            (store.read_block(0).unwrap(), store.present().unwrap()),
            (None, 5)
        );
        // As after a power failure: the map without the bytes.
        store.data.set_len(BLOCK).unwrap();
        assert_eq!(store.read_block(1).unwrap(), None);
    }

    /// A server may announce such an image, whose map takes gigabytes.
    #[test]
    fn of_the_longest_image_only_what_is_there_is_counted() {
        let length = (8 << 40) - 5;
        let store = store(length);
        let last = length / BLOCK;
        for block in [0, 1, last / 2, last] {
            let range = store.range(block);
            let bytes = vec![1; (range.end - range.start) as usize];
            store.write_block(block, &bytes).unwrap();
        }
        assert_eq!(store.present().unwrap(), 4 * BLOCK - 5);
    }

    #[test]
    fn a_flipped_bit_makes_a_block_absent() {
        let store = store(BLOCK);
        store.write_block(0, &vec![0; BLOCK as usize]).unwrap();
        assert!(store.read_block(0).unwrap().is_some());
        assert!(!store.forget_damaged().unwrap());
        store.data.write_all_at(&[4], 4711).unwrap();
        assert_eq!(store.read_block(0).unwrap(), None);
        assert!(store.forget_damaged().unwrap() && !store.has_block(0).unwrap());
    }
}
