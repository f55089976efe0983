//! A whole walk of an image.

use crate::content::{Budget, Content, Opened, open_whole};
use crate::memory::metered;
use crate::{directory, extents, xattrs};
use erofs_format::dir::{self, Item};
use erofs_format::{FileType, Inode, Nid, ReadAt, Reader};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

/// The most inodes visited.
const VISITED: usize = 400;
/// Bytes of each file that are read: from its start, and before its end.
const SAMPLE: u64 = 40_000;

/// Every inode can be visited once from the root down; each of them keeps the promises of
/// directories, extent maps and attributes; reading content succeeds or returns an error; and two
/// reads of different sizes return the same bytes, unless the index of the file, or of the inode
/// that holds its fragments, contradicts itself. In that case, tools that check images must be able
/// to detect the contradiction.
pub fn walk(data: &[u8]) {
    metered(|| visit_all(data));
}

fn visit_all(data: &[u8]) {
    let budget = Budget::new();
    let Ok(opened) = open_whole(data, &budget) else {
        return;
    };
    let image = opened.reader();
    let mut waiting = vec![image.superblock().root_nid];
    let mut seen = HashSet::new();
    while let Some(nid) = waiting.pop() {
        if seen.len() == VISITED || !seen.insert(nid) || !budget.spend(0) {
            continue;
        }
        if let Ok(inode) = image.inode(nid) {
            visit(&opened, inode, &budget, &mut waiting);
        }
    }
}

fn visit(opened: &Opened, inode: Inode, budget: &Arc<Budget>, waiting: &mut Vec<Nid>) {
    let image = opened.reader();
    xattrs::check(image, &inode);
    extents::check(image, &inode, false);
    let is_directory = FileType::from_mode(inode.mode) == Some(FileType::Directory);
    let content = Content::new(opened, inode, budget);
    if !is_directory {
        return read_twice(image, &content);
    }
    let block_size = image.superblock().block_size;
    // Content that the budget cuts short cannot be compared with itself, so only small directories
    // are checked.
    if content.size() <= SAMPLE {
        let mut bytes = vec![0; content.size() as usize];
        if content.read_exact_at(&mut bytes, 0).is_ok() {
            directory::check(&bytes, block_size);
        }
    }
    let _ = dir::read(&content, block_size, 0, &mut |item| {
        if let Item::Entry(entry) = item {
            waiting.push(entry.nid);
        }
        match waiting.len() < VISITED * 4 {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
}

fn read_twice(image: Reader<'_>, content: &Content) {
    for start in [0, content.size().saturating_sub(SAMPLE)] {
        let length = (content.size() - start).min(SAMPLE) as usize;
        let mut whole = vec![0; length];
        if content.read_exact_at(&mut whole, start).is_err() {
            continue;
        }
        let mut part = vec![0; length.div_ceil(3)];
        let middle = start + length as u64 / 3;
        part.truncate((start + length as u64 - middle) as usize);
        if content.read_exact_at(&mut part, middle).is_ok() {
            let expected = &whole[length / 3..][..part.len()];
            assert!(
                part[..] == *expected || contradicts_itself(image, content.inode()),
                "nid {:#x}: different bytes when reading begins at {middle}",
                content.inode().nid
            );
        }
    }
}

/// Whether the index of an inode, or of an inode that holds parts of others, contradicts itself.
fn contradicts_itself(image: Reader<'_>, inode: &Inode) -> bool {
    let shared = [
        image.superblock().packed_nid,
        image.superblock().metabox_nid,
    ];
    let holders = shared
        .into_iter()
        .flatten()
        .filter_map(|nid| image.inode(nid).ok());
    [inode.clone()]
        .into_iter()
        .chain(holders)
        .any(|inode| image.contradiction(&inode).is_some())
}
