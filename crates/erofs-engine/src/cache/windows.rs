//! A cache of bytes in windows, so that data that is read in small pieces is fetched or decoded
//! once for many reads.

use std::hash::Hash;
use std::io;

use erofs_format::ReadAt;

use crate::cache::ReadCache;

/// Recently read windows, by the caller's key. Their weights are their lengths.
pub(crate) type Windows<K> = ReadCache<K, Box<[u8]>>;

impl<K: Eq + Hash> Windows<K> {
    /// Copies bytes from `offset` on, out of the window of `bytes` bytes that contains it; `key`
    /// maps the window's number to its key. Returns the number of bytes copied.
    ///
    /// # Errors
    /// Errors of `source`, from which a window that is not cached is read as a whole, and
    /// `UnexpectedEof` beyond the end of `source`.
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
        if let Some(window) = self.get(&key) {
            return copy_from(&window, from as usize, out);
        }
        let start = offset - from;
        let length = bytes.min(source.size().saturating_sub(start));
        let mut window = vec![0; length as usize].into_boxed_slice();
        source.read_exact_at(&mut window, start)?;
        let copied = copy_from(&window, from as usize, out);
        self.put(key, window, length);
        copied
    }
}

/// Copies the bytes of `window` from byte `from` on; fails if there are none.
fn copy_from(window: &[u8], from: usize, out: &mut [u8]) -> io::Result<usize> {
    let rest = window.get(from..).filter(|rest| !rest.is_empty());
    let rest = rest.ok_or(io::ErrorKind::UnexpectedEof)?;
    let count = out.len().min(rest.len());
    out[..count].copy_from_slice(&rest[..count]);
    Ok(count)
}
