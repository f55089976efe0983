//! A cache of metadata: on-disk structures are small and close to each other.

use std::io;
use std::sync::Arc;

use erofs_format::ReadAt;

use cpu_workers::PiMutex;

use crate::budget;
use crate::cache::Cache;

/// Bytes of one cached block of metadata.
const BLOCK: u64 = 4096;
/// Longer reads bypass the cache: they are content, not structures.
const LONGEST: usize = 2 * BLOCK as usize;
/// Independent parts of the cache, each with a lock of its own.
const SHARDS: usize = 8;
/// Bytes cached in all.
const BUDGET: u64 = 1 << 20;

type Shard = PiMutex<Cache<u64, Arc<[u8]>>>;

/// A device or the metabox, with the blocks read last cached.
#[derive(Debug)]
pub(crate) struct MetadataCache {
    device: Arc<dyn ReadAt>,
    shards: [Shard; SHARDS],
}

impl MetadataCache {
    pub(crate) fn new(device: Arc<dyn ReadAt>) -> Self {
        let shard = |_| PiMutex::new(Cache::new(BUDGET / SHARDS as u64));
        Self {
            device,
            shards: std::array::from_fn(shard),
        }
    }

    fn block(&self, index: u64) -> io::Result<Arc<[u8]>> {
        let shard = &self.shards[index as usize % SHARDS];
        let lock = || shard.lock();
        if let Some(block) = lock().get(&index) {
            return Ok(block.clone());
        }
        let start = index * BLOCK;
        let length = BLOCK.min(self.device.size().saturating_sub(start));
        let mut bytes = vec![0; length as usize];
        self.device.read_exact_at(&mut bytes, start)?;
        let block: Arc<[u8]> = bytes.into();
        lock().put(index, block.clone(), BLOCK);
        Ok(block)
    }
}

impl ReadAt for MetadataCache {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        budget::step().map_err(io::Error::other)?;
        let end = offset.checked_add(buf.len() as u64);
        if buf.len() > LONGEST || end.is_none_or(|end| end > self.size()) {
            return self.device.read_exact_at(buf, offset);
        }
        let mut position = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let block = self.block(position / BLOCK)?;
            let from = (position % BLOCK) as usize;
            let count = rest.len().min(block.len().saturating_sub(from));
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&block[from..from + count]);
            position += count as u64;
            rest = later;
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.device.size()
    }
}
