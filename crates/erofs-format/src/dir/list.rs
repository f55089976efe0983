//! Lists a directory.

use std::ops::ControlFlow;

use crate::{Error, ReadAt, Result};

use super::Dirent;
use super::block::{Block, ENTRY, load};

/// An item that [`read`] passes to its callback.
#[derive(Debug)]
pub enum Item<'a> {
    /// An entry.
    Entry(Dirent<'a>),
    /// A broken entry or block; the listing continues after it.
    Broken {
        /// What is wrong with it.
        error: Error,
        /// The cookie that continues the listing after it.
        next: u64,
    },
}

/// A listing ends after this many consecutive blocks without a valid entry. Without this limit, the
/// listing of a directory that claims terabytes of such blocks would never end.
const MAX_BROKEN: u32 = 64;

/// Calls `each` with the items of the directory in order, starting at the cookie `position` (0 is
/// the beginning), until `each` breaks or the directory ends.
///
/// `content` is the decoded content of the directory, exactly as long as its size. `.` is not among
/// the entries if [`crate::Inode::dot_omitted`]. Fails if a block cannot be read, or after too many
/// consecutive blocks without a valid entry.
pub fn read(
    content: &dyn ReadAt,
    block_size: u32,
    position: u64,
    each: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let size = content.size();
    if position >= size {
        // The cookie is the end of the directory. It need not be a multiple of the block size,
        // because the last block may be short.
        return Ok(());
    }
    let block_size = u64::from(block_size);
    let mut buf = vec![0; size.min(block_size) as usize];
    let mut start = position / block_size * block_size;
    // A cookie that was not obtained from [`read`] may point between entries.
    let mut first = ((position - start) as usize).div_ceil(ENTRY);
    let mut broken = 0;
    while start < size {
        let end = start.saturating_add(block_size).min(size);
        let bytes = load(content, size, start, &mut buf)?;
        let flow = match Block::parse(bytes, start) {
            Ok(block) => {
                let (sound, flow) = entries(&block, start, end, first, each);
                broken = if sound { 0 } else { broken + 1 };
                flow
            }
            Err(error) => {
                broken += 1;
                each(Item::Broken { error, next: end })
            }
        };
        if broken > MAX_BROKEN {
            return corrupted!(
                "directory: no valid entry in the {MAX_BROKEN} blocks before the one at {start}"
            );
        }
        if flow.is_break() {
            return Ok(());
        }
        (start, first) = (end, 0);
    }
    Ok(())
}

/// Calls `each` with the entries of the block at `start`, from `first` on. Also returns whether the
/// block has a valid entry.
fn entries(
    block: &Block<'_>,
    start: u64,
    end: u64,
    first: usize,
    each: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
) -> (bool, ControlFlow<()>) {
    // Skipped entries count as valid: the listing may be resuming after the block's only valid
    // ones.
    let mut sound = first > 0;
    for index in first..block.count {
        let next = match index + 1 < block.count {
            true => start + ((index + 1) * ENTRY) as u64,
            false => end,
        };
        let flow = each(match block.entry(index) {
            Ok(entry) => {
                sound = true;
                Item::Entry(Dirent {
                    name: entry.name,
                    nid: entry.nid,
                    file_type: entry.file_type,
                    next,
                })
            }
            Err(error) => Item::Broken { error, next },
        });
        if flow.is_break() {
            return (sound, flow);
        }
    }
    (sound, ControlFlow::Continue(()))
}

#[cfg(test)]
mod tests {
    use super::super::block::tests::block_of;
    use super::*;

    /// Names (or "!" for broken entries) with their cookies, at most `limit` of them.
    fn listed(content: &dyn ReadAt, position: u64, limit: usize) -> Vec<(String, u64)> {
        let mut found = Vec::new();
        read(content, 512, position, &mut |item| {
            found.push(match item {
                Item::Entry(entry) => (String::from_utf8_lossy(entry.name).into(), entry.next),
                Item::Broken { next, .. } => ("!".into(), next),
            });
            if found.len() == limit {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .unwrap();
        found
    }

    fn two_blocks() -> Vec<u8> {
        let mut content = block_of(&[b"a", b"b", b"c"], 1, 512);
        content.extend(block_of(&[b"d", b"e"], 4, 26));
        content
    }

    #[test]
    fn a_listing_goes_on_at_every_cookie() {
        let content = two_blocks();
        let all = listed(&content, 0, 99);
        let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c", "d", "e"]);
        assert_eq!(all.last().unwrap().1, content.len() as u64);
        for (index, (_, cookie)) in all.iter().enumerate() {
            assert_eq!(listed(&content, *cookie, 99), all[index + 1..]);
            assert_eq!(listed(&content, 0, index + 1), all[..=index]);
        }
        assert!(listed(&content, 1 << 60, 99).is_empty());
    }

    #[test]
    fn a_short_last_block_that_is_broken_is_listed_once() {
        let mut content = two_blocks();
        // The first name offset in the second block does not yield a valid number of entries.
        content[512 + 8] = 13;
        let all = listed(&content, 0, 99);
        let end = content.len() as u64;
        assert_eq!(all.last(), Some(&("!".to_owned(), end)));
        assert!(listed(&content, end, 99).is_empty());
    }

    #[test]
    fn a_broken_entry_leaves_the_others_listed() {
        let mut content = two_blocks();
        content[12 * 3 + 1] = b'/';
        let names: Vec<_> = listed(&content, 0, 99)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["a", "!", "c", "d", "e"]);
    }

    #[test]
    fn a_broken_block_leaves_the_others_listed() {
        let mut content = two_blocks();
        content[8] = 13;
        let names: Vec<_> = listed(&content, 0, 99)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["!", "d", "e"]);
    }

    #[test]
    fn nothing_but_broken_blocks_ends_the_listing() {
        let mut count = 0;
        let result = read(&vec![0; 512 * 1000], 512, 0, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        });
        assert!(result.is_err());
        assert_eq!(count, MAX_BROKEN + 1);
    }

    #[test]
    fn blocks_of_broken_entries_end_the_listing_as_well() {
        let block = block_of(&[b"/", b"//"], 1, 512);
        let mut count = 0;
        let result = read(&block.repeat(1000), 512, 0, &mut |_| {
            count += 1;
            ControlFlow::Continue(())
        });
        assert!(result.is_err());
        assert_eq!(count, 2 * (MAX_BROKEN + 1));
    }

    #[test]
    fn an_empty_directory_has_no_entries() {
        assert!(listed(&Vec::new(), 0, 99).is_empty());
    }
}
