//! The content of directories, in cached windows.
//!
//! The format reads directories block by block. Without this cache each block would cost a system
//! call or, if the pcluster cache is too small, the decoding of the pcluster or fragment that
//! contains the block.

use std::io;

use erofs_format::{DataLayout, Nid, ReadAt};

use crate::cache::windows::Windows;
use crate::read::FileReader;

/// Bytes decoded per window.
const WINDOW: u64 = 128 << 10;
/// Bytes read per window of an uncompressed directory.
const PLAIN_WINDOW: u64 = 16 << 10;
/// Total bytes of cached windows.
const CAPACITY: u64 = 1 << 20;
/// Minimum number of bytes for each image if there are many, since a lookup may read one directory
/// in each.
const OF_EACH: u64 = 32 << 10;

/// Bytes in a typical window: most directories are small.
const USUAL: u64 = 4096;

/// A cache of windows, by inode and window number.
pub(crate) type DirectoryCache = Windows<(Nid, u64)>;

/// Creates the cache for `count` images.
pub(crate) fn cache_of_images(count: usize) -> DirectoryCache {
    DirectoryCache::new(CAPACITY.max(count as u64 * OF_EACH), USUAL)
}

/// A directory, for one request.
#[derive(Debug)]
pub(crate) struct Directory<'a> {
    pub content: FileReader<'a>,
    pub cache: &'a DirectoryCache,
}

impl Directory<'_> {
    /// Copies from the window around `offset`; returns the number of bytes.
    fn copy(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = match self.content.inode.is_compressed() {
            true => WINDOW,
            false => PLAIN_WINDOW,
        };
        let key = |number| (self.content.inode.nid, number);
        self.cache.copy(&self.content, key, bytes, offset, buf)
    }

    /// Whether the whole directory is stored after its inode, which is cached.
    fn is_inline(&self) -> bool {
        let block = self.content.path.block_size;
        self.content.inode.layout() == DataLayout::FlatInline && self.size() < block
    }
}

impl ReadAt for Directory<'_> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.content.request.step().map_err(io::Error::other)?;
        if self.is_inline() {
            return self.content.read_exact_at(buf, offset);
        }
        let mut done = 0;
        while done < buf.len() {
            let (rest, position) = (&mut buf[done..], offset + done as u64);
            match self.copy(rest, position) {
                Ok(count) => done += count,
                // The window may contain a broken block that the caller does not want.
                Err(_) => return self.content.read_exact_at(rest, position),
            }
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.content.size()
    }
}
