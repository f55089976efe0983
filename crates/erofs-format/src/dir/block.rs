//! One directory block.

use crate::meta::{structure, until_nul};
use crate::raw::RawDirent;
use crate::{Nid, ReadAt, Result};

/// Bytes in an entry.
pub(super) const ENTRY: usize = size_of::<RawDirent>();
/// `EROFS_NAME_LEN`.
const MAX_NAME: usize = 255;

/// A block that was read, and its number of entries.
pub(super) struct Block<'a> {
    bytes: &'a [u8],
    /// The block's offset in the directory.
    start: u64,
    pub count: usize,
}

/// An entry with a valid directory name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub name: &'a [u8],
    pub nid: Nid,
    pub file_type: u8,
}

/// Reads the block at `start` (a multiple of the block size below the directory's size).
pub(super) fn load<'a>(
    content: &dyn ReadAt,
    size: u64,
    start: u64,
    buf: &'a mut [u8],
) -> Result<&'a [u8]> {
    let length = (size - start).min(buf.len() as u64) as usize;
    let bytes = &mut buf[..length];
    let read = content.read_exact_at(bytes, start);
    read.map_err(|source| crate::meta::io_error("a directory", start, length, source))?;
    Ok(bytes)
}

impl<'a> Block<'a> {
    /// Reads the first entry, which determines the number of entries.
    pub fn parse(bytes: &'a [u8], start: u64) -> Result<Block<'a>> {
        let first = match bytes.get(..ENTRY) {
            Some(bytes) => usize::from(structure::<RawDirent>(bytes).nameoff.get()),
            None => 0,
        };
        if first < ENTRY || first % ENTRY != 0 || first > bytes.len() {
            return corrupted!(
                "directory block at {start}: names cannot begin at byte {first} of {}",
                bytes.len()
            );
        }
        Ok(Block {
            bytes,
            start,
            count: first / ENTRY,
        })
    }

    fn raw(&self, index: usize) -> RawDirent {
        structure(&self.bytes[index * ENTRY..(index + 1) * ENTRY])
    }

    /// The entry at `index`, which must be below `count`.
    pub fn entry(&self, index: usize) -> Result<Entry<'a>> {
        let raw = self.raw(index);
        let begin = usize::from(raw.nameoff.get());
        let last = index + 1 == self.count;
        let end = if last {
            self.bytes.len()
        } else {
            self.raw(index + 1).nameoff.get().into()
        };
        let name = self
            .bytes
            .get(begin..end)
            .filter(|_| begin >= self.count * ENTRY);
        let name = name.map(|name| if last { until_nul(name) } else { name });
        match name {
            Some(name) if is_name(name) => Ok(Entry {
                name,
                nid: raw.nid.get(),
                file_type: raw.file_type,
            }),
            Some(name) => corrupted!(
                "entry {index} of the directory block at {}: \"{}\" is not a valid name",
                self.start,
                shown(name)
            ),
            None => corrupted!(
                "entry {index} of the directory block at {}: its name, at {begin}..{end}, is outside the names of the block",
                self.start
            ),
        }
    }
}

/// Whether a name is valid as a path component.
fn is_name(name: &[u8]) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && !name.iter().any(|&byte| byte == b'/' || byte == 0)
}

/// A name for an error message, shortened to fit on a line.
fn shown(name: &[u8]) -> impl std::fmt::Display + '_ {
    name[..name.len().min(64)].escape_ascii()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A directory block with these entries, and nids counting up from `nid`.
    pub fn block_of(names: &[&[u8]], nid: u64, size: usize) -> Vec<u8> {
        let (mut entries, mut bytes): (Vec<u8>, Vec<u8>) = Default::default();
        for (name, nid) in names.iter().zip(nid..) {
            let nameoff = (names.len() * ENTRY + bytes.len()) as u16;
            entries.extend(nid.to_le_bytes());
            entries.extend(nameoff.to_le_bytes());
            entries.extend([1, 0]);
            bytes.extend(*name);
        }
        entries.extend(bytes);
        assert!(entries.len() <= size, "too many names for the block");
        entries.resize(size, 0);
        entries
    }

    #[test]
    fn the_last_name_ends_at_a_nul_or_with_the_block() {
        let bytes = block_of(&[b"a", b"bc"], 7, 64);
        let block = Block::parse(&bytes, 0).unwrap();
        assert_eq!(block.count, 2);
        assert_eq!(block.entry(0).unwrap().name, b"a");
        let last = block.entry(1).unwrap();
        assert_eq!((last.name, last.nid), (&b"bc"[..], 8));
        let block = Block::parse(&bytes[..27], 0).unwrap();
        assert_eq!(block.entry(1).unwrap().name, b"bc");
    }

    #[test]
    fn what_is_no_path_component_is_no_name() {
        let long = [b'x'; 256];
        for name in [&b"a/b"[..], b"/", b"", b"\0", b"a\0b", &long] {
            // A NUL would end the last name of a block, but this name is not the last one.
            let bytes = block_of(&[name, b"z"], 1, 512);
            let block = Block::parse(&bytes, 0).unwrap();
            assert!(block.entry(0).is_err(), "{}", name.escape_ascii());
            assert_eq!(block.entry(1).unwrap().name, b"z");
        }
    }

    #[test]
    fn a_first_name_offset_that_counts_no_entries_is_refused() {
        for offset in [0u16, 11, 13, 65000] {
            let mut bytes = block_of(&[b"a"], 1, 512);
            bytes[8..10].copy_from_slice(&offset.to_le_bytes());
            assert!(Block::parse(&bytes, 0).is_err(), "{offset}");
        }
        assert!(Block::parse(&[0; 5], 0).is_err());
    }

    #[test]
    fn names_among_the_entries_and_behind_the_block_are_refused() {
        for offset in [0u16, 23, 600] {
            let mut bytes = block_of(&[b"a", b"b"], 1, 512);
            bytes[20..22].copy_from_slice(&offset.to_le_bytes());
            let block = Block::parse(&bytes, 0).unwrap();
            assert!(block.entry(1).is_err(), "{offset}");
        }
    }
}
