//! The oracle of directories.

use crate::opening::one_line;
use erofs_format::dir::{self, Item};
use erofs_format::{Nid, ReadAt};
use std::ops::ControlFlow;

/// Maximum number of entries that are tried: each is looked up, and a listing is resumed after it.
const PROBES: usize = 40;

/// Any directory content can be listed to its end, from any cookie. Names have 1 to 255 bytes and
/// contain neither `/` nor NUL, cookies increase, a listing resumed at a cookie continues as the
/// whole one did, and a lookup finds nothing that is not listed.
///
/// Runs the oracle: the first byte of `data` chooses the block size, the rest is the content.
pub fn directory(data: &[u8]) {
    let Some((&choice, content)) = data.split_first() else {
        return;
    };
    check(&content.to_vec(), 512 << (choice % 8));
}

/// The input of [`directory`] for a block size and a content, used for writing seeds.
pub fn directory_input(block_size: u32, content: &[u8]) -> Vec<u8> {
    let mut data = vec![(block_size.trailing_zeros() - 9) as u8];
    data.extend(content);
    data
}

/// One item of a listing.
#[derive(Clone, Debug, PartialEq)]
struct Listed {
    /// None if it is broken.
    entry: Option<(Vec<u8>, Nid, u8)>,
    next: u64,
}

pub(crate) fn check(content: &dyn ReadAt, block_size: u32) {
    let Some(all) = list(content, block_size, 0) else {
        return;
    };
    let step = all.len().div_ceil(PROBES).max(1);
    for (index, listed) in all.iter().enumerate().step_by(step) {
        let rest = list(content, block_size, listed.next);
        assert_eq!(
            rest.as_deref(),
            Some(&all[index + 1..]),
            "resumed at {:#x}",
            listed.next
        );
        if let Some((name, ..)) = &listed.entry {
            lookup(content, block_size, name, &all);
        }
    }
    for name in [&b"."[..], b"..", b"absent", b"", &[0xff; 300]] {
        lookup(content, block_size, name, &all);
    }
    // Cookies that no listing returned.
    for position in [1, content.size() / 2, content.size(), u64::MAX] {
        list(content, block_size, position);
    }
}

fn list(content: &dyn ReadAt, block_size: u32, position: u64) -> Option<Vec<Listed>> {
    let mut all: Vec<Listed> = Vec::new();
    let result = dir::read(content, block_size, position, &mut |item| {
        let listed = match item {
            Item::Entry(entry) => {
                check_name(entry.name);
                let entry_of = (entry.name.to_vec(), entry.nid, entry.file_type);
                Listed {
                    entry: Some(entry_of),
                    next: entry.next,
                }
            }
            Item::Broken { error, next } => {
                one_line(&error.to_string());
                Listed { entry: None, next }
            }
        };
        let before = all.last().map_or(position, |last| last.next);
        assert!(
            listed.next > before,
            "cookie {:#x} after {before:#x}",
            listed.next
        );
        all.push(listed);
        ControlFlow::Continue(())
    });
    result.ok().map(|()| all)
}

fn check_name(name: &[u8]) {
    assert!(
        (1..=255).contains(&name.len()),
        "name of {} bytes",
        name.len()
    );
    assert!(!name.contains(&b'/') && !name.contains(&0), "name {name:?}");
}

fn lookup(content: &dyn ReadAt, block_size: u32, name: &[u8], all: &[Listed]) {
    if let Ok(Some((nid, file_type))) = dir::lookup(content, block_size, name) {
        let found = Some((name.to_vec(), nid, file_type));
        assert!(
            all.iter().any(|listed| listed.entry == found),
            "{found:?} is not listed"
        );
    }
}
