//! Selects what to read: the biggest files for throughput, otherwise the whole tree.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::cell::Test;

/// Maximum number of bytes to compare between engines before anything is measured.
const COMPARED: u64 = 64 << 20;

/// A part of a file. The path is relative to the mount point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    pub(crate) start: u64,
    pub(crate) length: u64,
}

/// The biggest files, up to `limit` bytes in total.
#[derive(Debug, Clone, Default)]
pub(crate) struct Content {
    pub(crate) parts: Vec<Part>,
}

impl Content {
    pub(crate) fn find(point: &Path, limit: u64) -> io::Result<Content> {
        let mut files = Vec::new();
        walk(point, &mut |path, metadata| {
            if metadata.is_file() && metadata.len() > 0 {
                files.push((
                    metadata.len(),
                    path.strip_prefix(point).unwrap_or(path).to_owned(),
                ));
            }
            Ok(())
        })?;
        files.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        let mut left = limit;
        let mut parts = Vec::new();
        for (size, path) in files {
            let length = size.min(left);
            if length > 0 {
                parts.push(Part {
                    path,
                    start: 0,
                    length,
                });
            }
            left -= length;
        }
        Ok(Content { parts })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.length).sum()
    }

    /// Divides the parts into contiguous shares of about equal size, at block boundaries, so that
    /// no block has two readers.
    pub(crate) fn shares(&self, readers: usize) -> Vec<Vec<Part>> {
        let block = Test::SEQUENTIAL_BLOCK as u64;
        let share = self
            .bytes()
            .div_ceil(readers as u64)
            .next_multiple_of(block);
        let mut shares = vec![Vec::new(); readers];
        let (mut reader, mut room) = (0, share);
        for part in &self.parts {
            let mut rest = part.clone();
            while rest.length > 0 {
                if room == 0 && reader + 1 < readers {
                    (reader, room) = (reader + 1, share);
                }
                let last = reader + 1 == readers;
                let length = if last {
                    rest.length
                } else {
                    rest.length.min(room)
                };
                shares[reader].push(Part {
                    length,
                    ..rest.clone()
                });
                room = room.saturating_sub(length);
                rest.start += length;
                rest.length -= length;
            }
        }
        shares
    }

    /// A hash of the first bytes, by which engines are compared.
    pub(crate) fn hash(&self, point: &Path) -> io::Result<Vec<u8>> {
        let mut hash = Sha256::new();
        let mut left = COMPARED;
        for part in &self.parts {
            let mut file =
                io::Read::take(File::open(point.join(&part.path))?, left.min(part.length));
            left -= io::copy(&mut file, &mut hash)?;
        }
        Ok(hash.finalize().to_vec())
    }
}

/// Visits every entry below `directory`. Symlinks are not followed but visited with their own
/// attributes.
pub(crate) fn walk(
    directory: &Path,
    each: &mut dyn FnMut(&Path, &fs::Metadata) -> io::Result<()>,
) -> io::Result<()> {
    let mut waiting = vec![directory.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let metadata = fs::symlink_metadata(&path)?;
            each(&path, &metadata)?;
            if metadata.is_dir() {
                waiting.push(path);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(sizes: &[u64]) -> Content {
        let part = |(number, &length): (usize, &u64)| Part {
            path: format!("f{number}").into(),
            start: 0,
            length,
        };
        Content {
            parts: sizes.iter().enumerate().map(part).collect(),
        }
    }

    #[test]
    fn shares_hold_every_byte_once() {
        let content = content(&[1_000_000, 300_001, 7]);
        for readers in [1, 2, 4, 16] {
            let shares = content.shares(readers);
            assert_eq!(shares.len(), readers);
            let mut parts: Vec<Part> = shares.concat();
            parts.sort_by(|a, b| a.path.cmp(&b.path).then(a.start.cmp(&b.start)));
            let mut end = (PathBuf::new(), 0);
            for part in parts {
                let begin = if part.path == end.0 { end.1 } else { 0 };
                assert_eq!(part.start, begin);
                end = (part.path, part.start + part.length);
            }
            assert_eq!(
                shares.concat().iter().map(|part| part.length).sum::<u64>(),
                1_300_008
            );
        }
    }

    #[test]
    fn shares_of_one_file_are_neighbours_and_even() {
        let shares = content(&[1 << 20]).shares(4);
        let starts: Vec<u64> = shares.iter().map(|share| share[0].start).collect();
        assert_eq!(starts, [0, 256 << 10, 512 << 10, 768 << 10]);
    }

    #[test]
    fn the_biggest_files_come_first_up_to_the_limit() {
        let scratch = crate::scratch::Scratch::new(&std::env::temp_dir()).unwrap();
        fs::write(scratch.path().join("small"), [1; 10]).unwrap();
        fs::write(scratch.path().join("big"), [2; 100]).unwrap();
        let content = Content::find(scratch.path(), 105).unwrap();
        let parts = content
            .parts
            .iter()
            .map(|part| (part.path.to_str(), part.length));
        assert_eq!(
            parts.collect::<Vec<_>>(),
            [(Some("big"), 100), (Some("small"), 5)]
        );
        assert_eq!(content.hash(scratch.path()).unwrap().len(), 32);
    }
}
