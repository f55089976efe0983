//! Patterns for names inside an image, as in shells: `*`, `?`, `[a-z]`, `**`.
//!
//! globset takes patterns as text and matches whole paths: it cannot represent bytes that are not
//! UTF-8, and would require reading every directory of the image.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use anyhow::bail;
use erofs_engine::Engine;
use erofs_engine::erofs_format::{FileType, Inode};
use erofs_mount::text::{escaped_byte, unquoted};

use crate::tools::listing::Listing;
use crate::tools::text;
use crate::tools::tree::{self, join};

/// An entry that a path or a pattern denotes.
pub struct Found {
    /// Path from the root, without a leading slash.
    pub path: Vec<u8>,
    /// The inode, or why it cannot be read.
    pub inode: anyhow::Result<Arc<Inode>>,
    /// Whether the entry was found by a pattern.
    pub by_pattern: bool,
}

impl Found {
    fn of(path: Vec<u8>, inode: anyhow::Result<Arc<Inode>>) -> Self {
        Self {
            path,
            inode,
            by_pattern: true,
        }
    }
}

/// The entry at `path`, given as raw bytes or as [`text::name`] shows them. A symlink at its end is
/// followed if `follow` is true.
///
/// # Errors
/// There is no such entry, or something on the path cannot be read.
pub fn resolve(
    engine: &Engine,
    path: &[u8],
    follow: bool,
) -> anyhow::Result<(Vec<u8>, Arc<Inode>)> {
    let found = |path: &[u8]| Ok((normal(path), engine.resolve(path, follow)?));
    found(path).or_else(|error| found(&unquoted(path)).map_err(|_| error))
}

/// The entries that `pattern` matches, sorted by name. A path that exists, or that has no wildcard,
/// stands for itself; `follow` resolves it if it is a symlink.
///
/// # Errors
/// Nothing is found. An entry that is found but cannot be read carries its own error.
pub fn expand(engine: &Engine, pattern: &[u8], follow: bool) -> anyhow::Result<Vec<Found>> {
    match resolve(engine, pattern, follow) {
        Ok((path, inode)) => {
            return Ok(vec![Found {
                by_pattern: false,
                ..Found::of(path, Ok(inode))
            }]);
        }
        Err(error) if !has_signs(pattern) => return Err(error),
        Err(_) => {}
    }
    let components: Vec<&[u8]> = components(pattern).collect();
    let root = engine.inode(engine.root())?;
    let mut search = Search {
        engine,
        found: Vec::new(),
        walked: HashSet::new(),
        hasher: RandomState::new(),
    };
    search.descend(Vec::new(), &root, &components);
    let mut found = search.found;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found.dedup_by(|a, b| a.path == b.path && a.inode.is_ok() == b.inode.is_ok());
    if found.is_empty() {
        let pattern = text::name(pattern);
        bail!("{}: {pattern}: no name matches", engine.name());
    }
    let is_link = |inode: &Arc<Inode>| follow && inode.file_type() == FileType::Symlink;
    for entry in &mut found {
        if entry.inode.as_ref().is_ok_and(is_link) {
            entry.inode = engine.resolve(&entry.path, true).map_err(Into::into);
        }
    }
    Ok(found)
}

/// Maximum number of names that a pattern may match.
const MATCHES: usize = 1 << 16;

/// Whether a path contains wildcards.
pub fn has_signs(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*?[".contains(byte))
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let all = path.split(|&byte| byte == b'/');
    all.filter(|name| !matches!(*name, b"" | b"."))
}

/// The path relative to the root of the image: `./a/b`, `/a/b` and `a//b` become `a/b`.
pub fn normal(path: &[u8]) -> Vec<u8> {
    components(path).collect::<Vec<_>>().join(&b'/')
}

/// A search for the entries that a pattern matches.
struct Search<'a> {
    engine: &'a Engine,
    found: Vec<Found>,
    /// Hashes of directories that were walked for a `**`, each with the remaining length of the
    /// pattern. Without them, a pattern with several `**` would walk a directory once for every way
    /// to divide the components of its path among the `**`.
    walked: HashSet<u64>,
    hasher: RandomState,
}

impl Search<'_> {
    /// Adds an entry that a pattern matches, while there is room.
    fn add(&mut self, path: Vec<u8>, inode: anyhow::Result<Arc<Inode>>) {
        match self.found.len() {
            0..MATCHES => self.found.push(Found::of(path, inode)),
            MATCHES => {
                let error = anyhow::anyhow!("more than {MATCHES} names match the pattern");
                self.found.push(Found::of(path, Err(error)));
            }
            _ => {}
        }
    }

    fn descend(&mut self, path: Vec<u8>, inode: &Arc<Inode>, pattern: &[&[u8]]) {
        let Some((&first, rest)) = pattern.split_first() else {
            return self.add(path, Ok(inode.clone()));
        };
        // A symlink in the middle of the path is resolved within the image.
        let directory = match inode.file_type() {
            FileType::Symlink => self.engine.resolve(&path, true),
            _ => Ok(inode.clone()),
        };
        match directory {
            Ok(directory) if directory.file_type() != FileType::Directory => {}
            Ok(directory) if first == b"**" => self.anywhere(&path, &directory, rest),
            Ok(directory) => self.entries(&path, directory, first, rest),
            Err(_) => {}
        }
    }

    fn entries(&mut self, path: &[u8], directory: Arc<Inode>, first: &[u8], rest: &[&[u8]]) {
        let mut listing = Listing::new(directory);
        while let Some(item) = listing.next(self.engine) {
            match item {
                Ok(name) if matches(first, &name.name) => {
                    let path = join(path, &name.name);
                    match self.engine.inode(name.nid) {
                        Ok(inode) => self.descend(path, &inode, rest),
                        Err(error) => self.add(path, Err(error.into())),
                    }
                }
                Ok(_) => {}
                // The name of the broken entry might match.
                Err(error) => self.add(path.to_vec(), Err(anyhow::anyhow!(error))),
            }
        }
    }

    /// Matches `rest` in a directory and everything below it.
    fn anywhere(&mut self, path: &[u8], directory: &Arc<Inode>, rest: &[&[u8]]) {
        let below = |below: &[u8]| join(path, below);
        if !self.is_first_walk(path, rest) {
            return;
        }
        for visit in tree::walk(self.engine, directory) {
            match visit {
                Err(fault) => self.add(below(&fault.path), Err(anyhow::anyhow!(fault.error))),
                Ok(entry) if rest.is_empty() => self.add(below(&entry.path), Ok(entry.inode)),
                Ok(entry) if entry.inode.file_type() == FileType::Directory => {
                    let (is_start, path) = (entry.path.is_empty(), below(&entry.path));
                    if is_start || self.is_first_walk(&path, rest) {
                        self.descend(path, &entry.inode, rest);
                    }
                }
                Ok(_) => {}
            }
        }
    }

    fn is_first_walk(&mut self, path: &[u8], rest: &[&[u8]]) -> bool {
        self.walked.insert(self.hasher.hash_one((path, rest.len())))
    }
}

/// Whether one name matches one component of a pattern. A leading dot must be matched literally.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let hidden = name.first() == Some(&b'.') && pattern.first() != Some(&b'.');
    !hidden && fits(pattern, name)
}

fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    // Where to resume if the rest after the last star does not match: the star then takes one more
    // byte.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        let step = match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, n));
                p += 1;
                continue;
            }
            Some(_) => one(&pattern[p..], &name[n..]),
            None => None,
        };
        match (step, retry) {
            (Some((length, taken)), _) => {
                p += length;
                n += taken;
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

/// Matches the first element of a pattern (`?`, a set, or one byte) with the beginning of a name.
/// Returns how many bytes of the pattern and of the name it takes; `None` if they do not match.
fn one(pattern: &[u8], name: &[u8]) -> Option<(usize, usize)> {
    let byte = *name.first()?;
    let takes = |length, fits: bool| fits.then_some((length, 1));
    if let Some(escaped) = escaped_byte(pattern) {
        return takes(4, escaped == byte);
    }
    match *pattern {
        [b'?', ..] => Some((1, character(name))),
        [b'\\', literal, ..] => takes(2, literal == byte),
        [b'[', ref class @ ..] => match class_of(class) {
            Some((length, set)) => takes(length + 1, set(byte)),
            None => takes(1, byte == b'['),
        },
        [literal, ..] => takes(1, literal == byte),
        [] => None,
    }
}

/// Bytes in the first character; a byte that is not UTF-8 counts as one.
fn character(name: &[u8]) -> usize {
    let valid = name.utf8_chunks().next().map(|chunk| chunk.valid());
    let first = valid.and_then(|valid| valid.chars().next());
    first.map_or(1, char::len_utf8)
}

/// The set after `[`: its length including the `]`, and a test for its members.
fn class_of(class: &[u8]) -> Option<(usize, impl Fn(u8) -> bool)> {
    let negated = matches!(class.first(), Some(b'!' | b'^'));
    let begin = usize::from(negated);
    // A `]` in first place is a member of the set.
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
    fn a_question_mark_is_a_character_or_a_byte_that_is_none() {
        assert!(matches("gr?n".as_bytes(), "grün".as_bytes()));
        assert!(matches(b"a?b", b"a\xffb"));
        assert!(matches(b"a\\xffb", b"a\xffb"));
        assert!(!matches(b"a\\xfeb", b"a\xffb"));
        assert!(matches(b"*\\\\*", b"back\\slash"));
    }

    #[test]
    fn many_stars_do_not_take_for_ever() {
        let pattern = "a*".repeat(40) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(255).as_bytes()));
    }
}
