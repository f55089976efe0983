//! Patterns for names inside of an image, as shells have them: `*`, `?`, `[a-z]`, `**`.

use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::bail;
use erofs_engine::Engine;
use erofs_engine::erofs_format::{FileType, Inode};

use crate::tree::{self, Visit, join};

/// An entry that a pattern stands for, with its path from the root, without a slash in front.
pub type Found = (Vec<u8>, Arc<Inode>);

/// The entries that `pattern` stands for, in the order of their names. A path that is there, or has
/// none of the signs, stands for itself; what it leads to counts if `follow`.
///
/// # Errors
/// Nothing is found, or something on the way cannot be read.
pub fn expand(engine: &Engine, pattern: &[u8], follow: bool) -> anyhow::Result<Vec<Found>> {
    let plain = engine.resolve(pattern, follow);
    if plain.is_ok() || !has_signs(pattern) {
        return Ok(vec![(normal(pattern), plain?)]);
    }
    let components: Vec<&[u8]> = components(pattern).collect();
    let root = engine.inode(engine.root())?;
    let mut found = Vec::new();
    descend(engine, Vec::new(), &root, &components, &mut found)?;
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found.dedup_by(|a, b| a.0 == b.0);
    if found.is_empty() {
        let pattern = crate::text::name(pattern);
        bail!("{}: {pattern}: nothing has a name like that", engine.name());
    }
    if follow {
        for (path, inode) in &mut found {
            if inode.file_type() == FileType::Symlink {
                *inode = engine.resolve(path, true)?;
            }
        }
    }
    Ok(found)
}

/// Whether a path is a pattern.
pub fn has_signs(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*?[".contains(byte))
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let all = path.split(|&byte| byte == b'/');
    all.filter(|name| !matches!(*name, b"" | b"."))
}

fn normal(path: &[u8]) -> Vec<u8> {
    components(path).collect::<Vec<_>>().join(&b'/')
}

fn descend(
    engine: &Engine,
    path: Vec<u8>,
    inode: &Arc<Inode>,
    pattern: &[&[u8]],
    found: &mut Vec<Found>,
) -> anyhow::Result<()> {
    let Some((&first, rest)) = pattern.split_first() else {
        found.push((path, inode.clone()));
        return Ok(());
    };
    // A symlink on the way leads to a directory of the image.
    let directory = match inode.file_type() {
        FileType::Symlink => engine.resolve(&path, true),
        _ => Ok(inode.clone()),
    };
    let Ok(directory) = directory else {
        return Ok(());
    };
    if directory.file_type() != FileType::Directory {
        return Ok(());
    }
    if first == b"**" {
        return anywhere(engine, &path, &directory, rest, found);
    }
    let mut names = Vec::new();
    engine.read_dir(&directory, 0, &mut |name, nid, _, _| {
        if !matches!(name, b"." | b"..") && matches(first, name) {
            names.push((name.to_vec(), nid));
        }
        ControlFlow::Continue(())
    })?;
    for (name, nid) in names {
        let inode = engine.inode(nid)?;
        descend(engine, join(&path, &name), &inode, rest, found)?;
    }
    Ok(())
}

/// What `rest` stands for in a directory and all below it.
fn anywhere(
    engine: &Engine,
    path: &[u8],
    directory: &Arc<Inode>,
    rest: &[&[u8]],
    found: &mut Vec<Found>,
) -> anyhow::Result<()> {
    tree::walk(engine, directory, &mut |visit| {
        let Visit::Entry(entry) = visit else {
            return Ok(());
        };
        let here = match entry.path.as_slice() {
            b"" => path.to_vec(),
            below => join(path, below),
        };
        if rest.is_empty() {
            found.push((here, entry.inode));
        } else if entry.inode.file_type() == FileType::Directory {
            descend(engine, here, &entry.inode, rest, found)?;
        }
        Ok(())
    })
}

/// Whether one name fits one component of a pattern. A dot in front has to be written.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let hidden = name.first() == Some(&b'.') && pattern.first() != Some(&b'.');
    !hidden && fits(pattern, name)
}

fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to go on when what follows the last star does not fit: the star takes one byte more.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        let step = match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, n));
                p += 1;
                continue;
            }
            Some(_) => one(&pattern[p..], name[n]),
            None => None,
        };
        match (step, retry) {
            (Some(length), _) => {
                p += length;
                n += 1;
            }
            (None, Some((after, at))) => {
                retry = Some((after, at + 1));
                (p, n) = (after, at + 1);
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// How many bytes of the pattern take this byte of the name; none if they do not.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern {
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (literal == byte).then_some(2),
        [b'[', ref class @ ..] => match class_of(class) {
            Some((length, set)) => set(byte).then_some(length + 1),
            None => (byte == b'[').then_some(1),
        },
        [literal, ..] => (literal == byte).then_some(1),
        [] => None,
    }
}

/// What stands behind `[`: its length with the `]`, and what it takes.
fn class_of(class: &[u8]) -> Option<(usize, impl Fn(u8) -> bool)> {
    let negated = matches!(class.first(), Some(b'!' | b'^'));
    let begin = usize::from(negated);
    // A bracket that comes first is one of the set.
    let end = begin + 1 + class.get(begin + 1..)?.iter().position(|&b| b == b']')?;
    let set = class[begin..end].to_vec();
    let takes = move |byte: u8| {
        let mut at = 0;
        let mut inside = false;
        while at < set.len() {
            if let [low, b'-', high] = *set.get(at..at + 3).unwrap_or_default() {
                inside |= (low..=high).contains(&byte);
                at += 3;
            } else {
                inside |= set[at] == byte;
                at += 1;
            }
        }
        inside != negated
    };
    Some((end + 1, takes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_mean_what_they_mean_in_a_shell() {
        for (pattern, fitting, other) in [
            ("*.so*", "libz.so.1", "libz.a"),
            ("a*b*c", "aXXbYbc", "aXXbYb"),
            ("?", "x", "xy"),
            ("[a-cx]1", "b1", "d1"),
            ("[!a-c]1", "d1", "b1"),
            ("[]]", "]", "["),
            ("[ab", "[ab", "a"),
            ("\\*", "*", "x"),
            ("*", "a", ".a"),
            (".*", ".a", "a"),
            ("", "", "a"),
        ] {
            assert!(
                matches(pattern.as_bytes(), fitting.as_bytes()),
                "{pattern} {fitting}"
            );
            assert!(
                !matches(pattern.as_bytes(), other.as_bytes()),
                "{pattern} {other}"
            );
        }
    }

    #[test]
    fn many_stars_do_not_take_for_ever() {
        let pattern = "a*".repeat(40) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(255).as_bytes()));
    }
}
