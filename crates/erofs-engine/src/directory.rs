//! The content of directories, decoded in windows that are cached.
//!
//! The format reads directories block by block. Without this cache each block would
//! cost a decoding of the pcluster or fragment around it: with a small cache, or where
//! a pcluster is larger than the cache.

use std::io;
use std::sync::Arc;

use erofs_format::{Nid, ReadAt};

use cpu_workers::{PiMutex, PiMutexGuard};

use crate::budget;
use crate::cache::Cache;
use crate::read::Content;

/// Bytes that are decoded at once.
const WINDOW: u64 = 128 << 10;
/// Bytes of all cached windows.
const BUDGET: u64 = 1 << 20;

/// By inode and number.
type Windows = Cache<(Nid, u64), Arc<[u8]>>;

/// Windows of directories that were read last. L: leaf lock.
#[derive(Debug)]
pub(crate) struct DirectoryCache(PiMutex<Windows>);

impl DirectoryCache {
    pub(crate) fn new() -> Self {
        Self(PiMutex::new(Cache::new(BUDGET)))
    }

    fn lock(&self) -> PiMutexGuard<'_, Windows> {
        self.0.lock()
    }
}

/// A directory, for one request.
#[derive(Debug)]
pub(crate) struct Directory {
    pub content: Content,
    pub cache: Arc<DirectoryCache>,
}

impl Directory {
    /// The window with this number.
    fn window(&self, number: u64) -> io::Result<Arc<[u8]>> {
        let key = (self.content.inode.nid, number);
        if let Some(window) = self.cache.lock().get(&key) {
            return Ok(window.clone());
        }
        let start = number * WINDOW;
        let length = WINDOW.min(self.size().saturating_sub(start));
        let mut bytes = vec![0; length as usize];
        self.content.read_exact_at(&mut bytes, start)?;
        let window: Arc<[u8]> = bytes.into();
        self.cache.lock().put(key, window.clone(), length);
        Ok(window)
    }

    /// Copies from the window around `offset`; returns how many bytes.
    fn copy(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let window = self.window(offset / WINDOW)?;
        let from = (offset % WINDOW) as usize;
        let count = buf.len().min(window.len().saturating_sub(from));
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buf[..count].copy_from_slice(&window[from..from + count]);
        Ok(count)
    }
}

impl ReadAt for Directory {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        budget::step().map_err(io::Error::other)?;
        // Stored as it is, a block costs no more than its bytes.
        if !self.content.inode.is_compressed() {
            return self.content.read_exact_at(buf, offset);
        }
        let mut done = 0;
        while done < buf.len() {
            match self.copy(&mut buf[done..], offset + done as u64) {
                Ok(count) => done += count,
                // Another block of the window may be the broken one.
                Err(_) => {
                    return self
                        .content
                        .read_exact_at(&mut buf[done..], offset + done as u64);
                }
            }
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.content.size()
    }
}
