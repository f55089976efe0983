//! The files an image is made of.

use std::fs::File;
use std::io::{self, IoSliceMut, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use erofs_format::ReadAt;
use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};

use crate::cache::Cache;

/// A file or block device that holds an image, or one of its extra devices.
///
/// Read by pread and never mapped: a file cut short under a mapping would kill the process.
#[derive(Debug)]
pub(crate) struct Device {
    file: File,
    path: PathBuf,
    /// First byte of the image in the file.
    base: u64,
    /// Bytes from `base` to the end of the file, at the time it was opened.
    size: u64,
    /// Cleared when the filesystem below knows no RWF_NOWAIT.
    nowait: AtomicBool,
}

impl Device {
    pub(crate) fn open(path: &Path, base: u64) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let kind = file.metadata()?.file_type();
        if kind.is_dir() {
            return Err(io::Error::new(
                io::ErrorKind::IsADirectory,
                "is a directory",
            ));
        }
        // The length of a block device is where its end is, not what its inode says.
        let end = file.seek(SeekFrom::End(0))?;
        Ok(Self {
            file,
            path: path.to_path_buf(),
            base,
            size: end.saturating_sub(base),
            nowait: AtomicBool::new(true),
        })
    }

    /// Fills `buf` from `offset`. When the bytes are not cached, the system is told of all of them
    /// before this thread starts to wait for the first.
    pub(crate) fn fetch(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let done = self.read_cached(buf, offset);
        if done == buf.len() {
            return Ok(());
        }
        let offset = offset + done as u64;
        let ahead = std::num::NonZeroU64::new((buf.len() - done) as u64);
        // Only a hint: where it is refused the read below still does its work.
        let _ = rustix::fs::fadvise(&self.file, self.base + offset, ahead, Advice::WillNeed);
        self.read_exact_at(&mut buf[done..], offset)
    }

    /// What of `buf` can be had without waiting for the disk.
    fn read_cached(&self, buf: &mut [u8], offset: u64) -> usize {
        if !self.nowait.load(Ordering::Relaxed) {
            return 0;
        }
        let Some(position) = self.base.checked_add(offset) else {
            return 0;
        };
        let mut slices = [IoSliceMut::new(buf)];
        match rustix::io::preadv2(&self.file, &mut slices, position, ReadWriteFlags::NOWAIT) {
            Ok(done) => done,
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.nowait.store(false, Ordering::Relaxed);
                0
            }
            Err(_) => 0,
        }
    }
}

impl ReadAt for Device {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!(
                    "{} ends at byte {}, {} bytes at {offset} are needed",
                    self.path.display(),
                    self.size,
                    buf.len()
                ),
            ));
        }
        FileExt::read_exact_at(&self.file, buf, self.base + offset)
    }

    fn size(&self) -> u64 {
        self.size
    }
}

/// Bytes of one cached piece of metadata.
const PIECE: u64 = 4096;
/// Reads longer than this go past the cache: they are content, not structures.
const LONGEST: usize = 2 * PIECE as usize;
/// Independent parts of the cache, each with a lock of its own.
const SHARDS: usize = 8;
/// Bytes kept in all.
const BUDGET: u64 = 1 << 20;

type Shard = Mutex<Cache<u64, Arc<[u8]>>>;

/// A device as the metadata sees it: many small reads close to each other, kept in memory.
#[derive(Debug)]
pub(crate) struct MetadataCache {
    device: Arc<dyn ReadAt>,
    shards: [Shard; SHARDS],
}

impl MetadataCache {
    pub(crate) fn new(device: Arc<dyn ReadAt>) -> Self {
        let shard = |_| Mutex::new(Cache::new(BUDGET / SHARDS as u64));
        Self {
            device,
            shards: std::array::from_fn(shard),
        }
    }

    fn piece(&self, index: u64) -> io::Result<Arc<[u8]>> {
        let shard = &self.shards[index as usize % SHARDS];
        let lock = || shard.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(piece) = lock().get(&index) {
            return Ok(piece.clone());
        }
        let start = index * PIECE;
        let length = PIECE.min(self.device.size().saturating_sub(start));
        let mut bytes = vec![0; length as usize];
        self.device.read_exact_at(&mut bytes, start)?;
        let piece: Arc<[u8]> = bytes.into();
        lock().put(index, piece.clone(), PIECE);
        Ok(piece)
    }
}

impl ReadAt for MetadataCache {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64);
        if buf.len() > LONGEST || end.is_none_or(|end| end > self.size()) {
            return self.device.read_exact_at(buf, offset);
        }
        let mut position = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let piece = self.piece(position / PIECE)?;
            let from = (position % PIECE) as usize;
            let count = rest.len().min(piece.len().saturating_sub(from));
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&piece[from..from + count]);
            position += count as u64;
            rest = later;
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.device.size()
    }
}
