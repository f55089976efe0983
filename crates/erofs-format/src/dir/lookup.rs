//! Looks up a name.
//!
//! A lookup makes two binary searches, first over the blocks, by the first name of each, then
//! within one block. If the order that they rely on turns out to be broken, every entry is compared
//! instead, so such a directory remains usable, but is slower.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use crate::{Error, Nid, ReadAt, Result};

use super::block::{Block, ENTRY, load};
use super::list::{Item, read};

/// Block size of most images.
const USUAL_BLOCK: usize = 4096;

/// Result of a binary search.
enum Outcome {
    Found(Nid, u8),
    Absent,
    /// The order is broken, so the search has no result.
    Disorder,
}

/// Looks up `name`: `Some((nid, file_type))`, or `None` if there is no such entry.
///
/// `content` is the decoded content of the directory, exactly as long as its size.
pub fn lookup(content: &dyn ReadAt, block_size: u32, name: &[u8]) -> Result<Option<(Nid, u8)>> {
    let outcome = with_buffer(content, block_size, |mut directory| directory.search(name));
    match outcome? {
        Outcome::Found(nid, file_type) => Ok(Some((nid, file_type))),
        Outcome::Absent => Ok(None),
        Outcome::Disorder => scan(content, block_size, name),
    }
}

/// The cookie from which [`read`] begins with the first entry whose name is `name` or sorts after
/// it; `None` if the names are not in order.
pub fn seek(content: &dyn ReadAt, block_size: u32, name: &[u8]) -> Result<Option<u64>> {
    with_buffer(content, block_size, |mut directory| directory.seek(name))
}

/// Calls `work` with a directory and a buffer for one of its blocks.
fn with_buffer<R>(
    content: &dyn ReadAt,
    block_size: u32,
    work: impl FnOnce(Directory<'_>) -> R,
) -> R {
    let size = content.size();
    let length = size.min(block_size.into()) as usize;
    // Blocks of 4 KiB, which nearly all images have, need no memory from the allocator.
    let (mut small, mut large) = ([0; USUAL_BLOCK], Vec::new());
    let buf = match small.get_mut(..length) {
        Some(buf) => buf,
        None => {
            large.resize(length, 0);
            &mut large[..]
        }
    };
    work(Directory {
        content,
        size,
        block_size: block_size.into(),
        buf,
    })
}

struct Directory<'a> {
    content: &'a dyn ReadAt,
    size: u64,
    block_size: u64,
    buf: &'a mut [u8],
}

/// Maximum number of blocks that a full comparison of a directory reads: 256 MiB in blocks of 4
/// KiB, millions of names.
const MAX_SCAN: u64 = 1 << 16;

impl Directory<'_> {
    fn load(&mut self, number: u64) -> Result<Result<Block<'_>, Error>> {
        let start = number * self.block_size;
        let bytes = load(self.content, self.size, start, self.buf)?;
        Ok(Block::parse(bytes, start))
    }

    /// Finds the last block whose first name is `Less`, or one whose first name is `Equal`. Returns
    /// its number, if there is such a block, and the number of the block in the buffer; `None` if a
    /// block has no valid first name.
    fn last_block(
        &mut self,
        compare: impl Fn(&[u8]) -> Ordering,
    ) -> Result<Option<[Option<u64>; 2]>> {
        let (mut low, mut high) = (0, self.size.div_ceil(self.block_size));
        let mut loaded = None;
        while low < high {
            let middle = low + (high - low) / 2;
            loaded = Some(middle);
            let Ok(block) = self.load(middle)? else {
                return Ok(None);
            };
            let Ok(first) = block.entry(0) else {
                return Ok(None);
            };
            match compare(first.name) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(Some([loaded, loaded])),
                Ordering::Greater => high = middle,
            }
        }
        Ok(Some([low.checked_sub(1), loaded]))
    }

    /// Finds the last block whose first name does not sort after `name`, and searches it.
    fn search(&mut self, name: &[u8]) -> Result<Outcome> {
        let Some([candidate, loaded]) = self.last_block(|first| first.cmp(name))? else {
            return Ok(Outcome::Disorder);
        };
        let Some(candidate) = candidate else {
            return self.order_of_first(loaded);
        };
        // Usually the candidate is the block that was read last.
        let block = match loaded == Some(candidate) {
            true => Block::parse(self.bytes_of(candidate), candidate * self.block_size),
            false => self.load(candidate)?,
        };
        Ok(block.map_or(Outcome::Disorder, |block| search_block(&block, name)))
    }

    /// Finds the last block whose first name sorts before `name`, and in that block the first entry
    /// whose name does not.
    fn seek(&mut self, name: &[u8]) -> Result<Option<u64>> {
        let before = |first: &[u8]| first.cmp(name).then(Ordering::Greater);
        let Some([candidate, _]) = self.last_block(before)? else {
            return Ok(None);
        };
        let Some(candidate) = candidate else {
            return Ok(Some(0));
        };
        let (start, size, block_size) = (candidate * self.block_size, self.size, self.block_size);
        let Ok(block) = self.load(candidate)? else {
            return Ok(None);
        };
        for index in 0..block.count {
            match block.entry(index) {
                Ok(entry) if entry.name < name => {}
                Ok(_) => return Ok(Some(start + (index * ENTRY) as u64)),
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(start.saturating_add(block_size).min(size)))
    }

    /// `name` sorts before the very first name: it is absent, unless the first block is out of
    /// order.
    fn order_of_first(&mut self, loaded: Option<u64>) -> Result<Outcome> {
        let ordered = loaded.is_none_or(|number| {
            let block = Block::parse(self.bytes_of(number), number * self.block_size);
            block.is_ok_and(|block| is_ordered(&block))
        });
        Ok(match ordered {
            true => Outcome::Absent,
            false => Outcome::Disorder,
        })
    }

    /// The bytes of the block in the buffer.
    fn bytes_of(&self, number: u64) -> &[u8] {
        let length = (self.size - number * self.block_size).min(self.block_size);
        &self.buf[..length as usize]
    }
}

/// Compares every entry that has a name. Fails if a broken entry may have the name.
fn scan(content: &dyn ReadAt, block_size: u32, name: &[u8]) -> Result<Option<(Nid, u8)>> {
    let blocks = content.size().div_ceil(block_size.into());
    if blocks > MAX_SCAN {
        return corrupted!(
            "directory of {blocks} blocks is out of order; at most {MAX_SCAN} are searched"
        );
    }
    let (mut found, mut gap) = (None, Gap::default());
    read(content, block_size, 0, &mut |item| {
        match item {
            Item::Entry(entry) if entry.name == name => {
                found = Some((entry.nid, entry.file_type));
                return ControlFlow::Break(());
            }
            Item::Entry(entry) => gap.add_sound(entry.name, name),
            Item::Broken { error, .. } => gap.add_broken(error),
        }
        ControlFlow::Continue(())
    })?;
    match found {
        Some(_) => Ok(found),
        None => gap.end(name).map_or(Ok(None), Err),
    }
}

/// Decides whether a name that no valid entry has may belong to a broken entry. If the valid names
/// ascend, the name of a broken entry must sort between those of its valid neighbours.
#[derive(Default)]
struct Gap {
    /// The last valid name.
    before: Vec<u8>,
    /// The error of the first broken entry.
    first: Option<Error>,
    /// Whether there is a broken entry after `before`.
    broken: bool,
    /// Whether the wanted name sorts to the position of a broken entry.
    fits: bool,
    disorder: bool,
}

impl Gap {
    fn add_sound(&mut self, name: &[u8], wanted: &[u8]) {
        self.disorder |= *self.before >= *name;
        self.fits |= self.broken && *self.before < *wanted && wanted < name;
        self.broken = false;
        name.clone_into(&mut self.before);
    }

    fn add_broken(&mut self, error: Error) {
        self.first.get_or_insert(error);
        self.broken = true;
    }

    fn end(self, wanted: &[u8]) -> Option<Error> {
        let behind = self.broken && *self.before < *wanted;
        self.first.filter(|_| self.fits || behind || self.disorder)
    }
}

/// Whether all entries have valid names, in ascending order. Costs about as much as reading the
/// block, and is only called if a name was not found.
fn is_ordered(block: &Block<'_>) -> bool {
    let mut before: &[u8] = b"";
    (0..block.count).all(|index| match block.entry(index) {
        Ok(entry) => std::mem::replace(&mut before, entry.name) < entry.name,
        Err(_) => false,
    })
}

fn search_block(block: &Block<'_>, name: &[u8]) -> Outcome {
    let (mut low, mut high) = (0, block.count);
    while low < high {
        let middle = low + (high - low) / 2;
        let Ok(entry) = block.entry(middle) else {
            return Outcome::Disorder;
        };
        match entry.name.cmp(name) {
            Ordering::Equal => return Outcome::Found(entry.nid, entry.file_type),
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
        }
    }
    if is_ordered(block) {
        Outcome::Absent
    } else {
        Outcome::Disorder
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::tests::block_of;
    use super::*;

    fn nid(content: &dyn ReadAt, name: &str) -> Option<u64> {
        lookup(content, 128, name.as_bytes())
            .unwrap()
            .map(|(nid, _)| nid)
    }

    /// A directory in blocks of 128 bytes, each with up to 4 of the names.
    fn directory(names: &[String]) -> Vec<u8> {
        let mut content = Vec::new();
        for (index, names) in names.chunks(4).enumerate() {
            let names: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
            content.extend(block_of(&names, index as u64 * 4, 128));
        }
        content
    }

    #[test]
    fn every_name_is_found_and_no_other() {
        for count in [0, 1, 2, 4, 5, 8, 9, 63, 257] {
            let names: Vec<String> = (0..count).map(|i| format!("n{i:04}")).collect();
            let content = directory(&names);
            for (index, name) in names.iter().enumerate() {
                assert_eq!(nid(&content, name), Some(index as u64), "{count} {name}");
                assert_eq!(nid(&content, &format!("{name}x")), None);
            }
            assert_eq!(nid(&content, "a"), None);
            assert_eq!(nid(&content, "z"), None);
            assert_eq!(nid(&content, ""), None);
        }
    }

    #[test]
    fn a_name_that_the_search_meets_is_found_even_if_later_blocks_are_out_of_order() {
        let names = [
            "m0", "m1", "m2", "m3", "a0", "a1", "a2", "a3", "00", "01", "02",
        ];
        let content = directory(&names.map(str::to_owned));
        assert_eq!(nid(&content, "a0"), Some(4));
    }

    #[test]
    fn a_listing_begins_where_a_name_is_or_would_be() {
        for count in [0, 1, 4, 5, 63] {
            let names: Vec<String> = (0..count).map(|i| format!("n{i:04}")).collect();
            let content = directory(&names);
            let first = |name: &str| {
                let position = seek(&content, 128, name.as_bytes()).unwrap().unwrap();
                let mut first = None;
                read(&content, 128, position, &mut |item| {
                    if let Item::Entry(entry) = item {
                        first = Some(String::from_utf8_lossy(entry.name).into_owned());
                    }
                    ControlFlow::Break(())
                })
                .unwrap();
                first
            };
            assert_eq!(first(""), names.first().cloned());
            for (index, name) in names.iter().enumerate() {
                assert_eq!(first(name).as_ref(), Some(name));
                assert_eq!(first(&format!("{name}x")), names.get(index + 1).cloned());
            }
            assert_eq!(first("z"), None);
        }
        let mut broken = directory(&["a", "b"].map(str::to_owned));
        broken[24] = b'/';
        assert_eq!(seek(&broken, 128, b"b").unwrap(), None);
    }

    #[test]
    fn names_out_of_order_are_found_all_the_same() {
        let mut names: Vec<String> = (0..40).map(|i| format!("n{i:04}")).collect();
        names.swap(0, 1);
        names.swap(10, 11);
        let content = directory(&names);
        for (index, name) in names.iter().enumerate() {
            assert_eq!(nid(&content, name), Some(index as u64), "{name}");
        }
    }

    #[test]
    fn a_broken_block_does_not_hide_the_names_of_others() {
        let names: Vec<String> = (0..40).map(|i| format!("n{i:04}")).collect();
        let mut content = directory(&names);
        content[5 * 128 + 8] = 13;
        for (index, name) in names.iter().enumerate() {
            match index / 4 {
                5 => assert!(lookup(&content, 128, name.as_bytes()).is_err(), "{name}"),
                _ => assert_eq!(nid(&content, name), Some(index as u64), "{name}"),
            }
        }
        assert_eq!(nid(&content, "n0018x"), None, "its neighbours are sound");
    }

    #[test]
    fn a_name_that_may_be_the_broken_one_is_not_absent() {
        let names: Vec<String> = (0..12).map(|i| format!("n{i:04}")).collect();
        let is_error =
            |content: &Vec<u8>, name: &str| lookup(content, 128, name.as_bytes()).is_err();
        let mut content = directory(&names);
        // The third entry of the second block.
        content[128 + 48 + 2 * 5] = b'/';
        assert!(is_error(&content, "n0006") && is_error(&content, "n0006x"));
        assert_eq!(nid(&content, "n0004x"), None);
        assert_eq!(nid(&content, "n0009x"), None);
        // If the names are out of order, the broken entry may have any name.
        let mut names = names;
        names.swap(0, 1);
        let mut content = directory(&names);
        content[128 + 48 + 2 * 5] = b'/';
        assert!(is_error(&content, "n0000x"));
    }

    #[test]
    fn a_broken_entry_does_not_hide_its_neighbours() {
        let names: Vec<String> = (0..4).map(|i| format!("n{i:04}")).collect();
        for broken in 0..4 {
            let mut content = directory(&names);
            content[48 + broken * 5] = b'/';
            for (index, name) in names.iter().enumerate() {
                let found = lookup(&content, 128, name.as_bytes());
                match index == broken {
                    true => assert!(found.is_err(), "{broken} {name}: {found:?}"),
                    false => assert_eq!(found.unwrap().map(|(nid, _)| nid), Some(index as u64)),
                }
            }
        }
    }
}
