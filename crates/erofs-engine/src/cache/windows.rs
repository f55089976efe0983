//! A cache of bytes in windows: what is read in small pieces is fetched or decoded once for many.

use std::hash::Hash;
use std::io;

use erofs_format::ReadAt;

use crate::cache::ReadCache;

/// Windows that were read last, by the caller's key.
#[derive(Debug)]
pub(crate) struct Windows<K>(ReadCache<K, Box<[u8]>>);

impl<K: Eq + Hash> Windows<K> {
    /// Holds at most `capacity` bytes, in windows that usually have `usual`.
    pub(crate) fn new(capacity: u64, usual: u64) -> Self {
        Self(ReadCache::new(capacity, usual))
    }

    /// Copies what the window of `bytes` bytes around `offset` has from there on; `key` is that of
    /// the window with this number. Returns how many bytes.
    ///
    /// # Errors
    /// Errors of `source`, from which a window that is not cached is read whole, and
    /// `UnexpectedEof` behind its end.
    pub(crate) fn copy(
        &self,
        source: &dyn ReadAt,
        key: impl FnOnce(u64) -> K,
        bytes: u64,
        offset: u64,
        out: &mut [u8],
    ) -> io::Result<usize> {
        let (number, from) = (offset / bytes, offset % bytes);
        let key = key(number);
        if let Some(window) = self.0.get(&key) {
            return copy_from(&window, from, out);
        }
        let start = offset - from;
        let length = bytes.min(source.size().saturating_sub(start));
        let mut window = vec![0; length as usize].into_boxed_slice();
        source.read_exact_at(&mut window, start)?;
        let copied = copy_from(&window, from, out);
        self.0.put(key, window, length);
        copied
    }
}

/// Copies what `window` has from byte `from` on; an error if that is nothing.
fn copy_from(window: &[u8], from: u64, out: &mut [u8]) -> io::Result<usize> {
    let rest = usize::try_from(from)
        .ok()
        .and_then(|from| window.get(from..));
    let rest = rest.filter(|rest| !rest.is_empty());
    let rest = rest.ok_or(io::ErrorKind::UnexpectedEof)?;
    let count = out.len().min(rest.len());
    out[..count].copy_from_slice(&rest[..count]);
    Ok(count)
}
