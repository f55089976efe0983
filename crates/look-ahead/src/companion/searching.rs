//! Finds names that a recording lacks: among those already known, in replays, and by listing
//! directories of the mount.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use super::Companion;
use crate::client;
use crate::learning::{self, Place};

/// Maximum number of directory entries that are searched for names.
const MOST_ENTRIES: usize = 1 << 15;

/// Time to find names during a launch.
const SOME_NAMES: Duration = Duration::from_millis(20);

/// The modes assumed for entries when only their paths are known.
const DIRECTORY: u32 = 0o040_555;
const FILE: u32 = 0o100_444;

impl Companion {
    /// Finds the names of files that were read without a lookup: they are in directories that were
    /// listed.
    pub(super) fn find_names(&mut self, root: &OwnedFd, deadline: Instant) {
        let mut unknown = self.unknown();
        // The names found in one directory may lead to the next one.
        while !unknown.is_empty()
            && Instant::now() < deadline
            && let Some(directory) = self.next_to_search()
        {
            let entries = &mut self.entries;
            let _ = client::list(root, &directory, &mut self.room, |name, ino| {
                if !matches!(name, b"." | b"..") {
                    let path = learning::joined(&directory, name);
                    entries.entry(ino).or_insert(path);
                }
                entries.len() < MOST_ENTRIES
            });
            self.searched.insert(directory);
        }
        unknown.retain(|ino| self.entries.contains_key(ino));
        for path in unknown.iter().filter_map(|ino| self.entries.get(ino)) {
            self.names.find(root, path);
        }
    }

    pub(super) fn find_some_names(&mut self) {
        let can_help = self.next_to_search().is_some() || !self.entries.is_empty();
        if can_help
            && !self.unknown().is_empty()
            && let Some(root) = self.mount.root()
        {
            self.find_names(&root, Instant::now() + SOME_NAMES);
        }
    }

    /// Inodes whose names are still needed to describe the launch.
    fn unknown(&self) -> HashSet<u64> {
        let recording = &self.recording;
        let read = recording.windows.iter().map(|window| window.ino);
        let links = recording.links.iter().map(|(ino, _)| *ino);
        let looked_in = recording.names.iter().map(|name| name.directory);
        let listed = recording.listed.iter().map(|(ino, _)| *ino);
        let all = read.chain(links).chain(looked_in).chain(listed);
        let unknown = all.filter(|ino| self.place(*ino).is_none());
        unknown.filter_map(|ino| self.names.missing(ino)).collect()
    }

    /// The next directory to search: one that was listed by the launch or a replay, or by any
    /// program shortly before the launch.
    fn next_to_search(&self) -> Option<Vec<u8>> {
        let of_launch = self.recording.listed.iter().map(|(ino, _)| *ino);
        let listed = of_launch.chain(self.recent.iter().copied());
        let path = |ino: u64| {
            let found = || self.entries.get(&ino).cloned();
            self.names.path(ino).or_else(found)
        };
        let replayed = self.replays.iter().flat_map(|replay| replay.directories());
        let all = listed.filter_map(path).chain(replayed.map(<[u8]>::to_vec));
        let mut new = all.filter(|path| !self.searched.contains(path));
        new.next()
    }

    /// The known properties of an inode.
    pub(super) fn place(&self, ino: u64) -> Option<Place> {
        if let Some(path) = self.names.path(ino) {
            let known = self.names.get(ino);
            return Some(Place {
                path,
                size: known.map_or(0, |known| known.size),
                mode: known.map_or(DIRECTORY, |known| known.mode),
            });
        }
        let mut replays = self.replays.iter();
        let (path, size) = replays.find_map(|replay| {
            let file = replay.file(ino, None)?;
            Some(replay.describe(file))
        })?;
        Some(Place {
            path: path.to_vec(),
            size,
            mode: FILE,
        })
    }
}
