//! Builds a profile, which has names, from a recording, which has inode numbers.

use std::collections::{HashMap, HashSet};

use launch_profile::text::Builder;
use launch_profile::{Profile, Trim};
use rustix::fs::FileType;

use crate::recording::Recording;

/// If at least one in this many entries was requested, the directory is listed as a whole. A lookup
/// takes 20 us, an entry of a listing 3.
const LIST_SHARE: u64 = 6;

/// Bytes in a directory entry: 12, and those of a typical name.
const ENTRY_BYTES: u64 = 24;

/// The known properties of a file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The path from the root of the mount.
    pub(crate) path: Vec<u8>,
    pub(crate) size: u64,
    pub(crate) mode: u32,
}

/// The profile of a launch. Anything without a known name is left out.
pub(crate) fn profile(recording: &Recording, place: &dyn Fn(u64) -> Option<Place>) -> Profile {
    let places = Places {
        recording,
        place,
        read: recording.windows.iter().map(|window| window.ino).collect(),
    };
    let mut builder = Builder::default();
    // Anything beyond the limits of a profile is left out.
    let listed = places.list(&mut builder);
    places.look_up(&mut builder, &listed);
    places.read(&mut builder);
    let mut profile = builder.finish();
    profile.trim(&Trim::default());
    profile
}

struct Places<'r> {
    recording: &'r Recording,
    place: &'r dyn Fn(u64) -> Option<Place>,
    /// Files that were read.
    read: HashSet<u64>,
}

impl Places<'_> {
    /// Returns the directories to list: those listed by the launch, and those in which it looks up
    /// many names.
    fn list(&self, builder: &mut Builder) -> HashSet<u64> {
        let mut listed: HashMap<u64, u32> = self.recording.listed.iter().copied().collect();
        let mut wanted: HashMap<u64, (u64, u32)> = HashMap::new();
        for name in &self.recording.names {
            if name.found.is_some() {
                let count = wanted.entry(name.directory).or_insert((0, name.at_ms));
                count.0 += 1;
            }
        }
        for (directory, (count, at_ms)) in wanted {
            let size = (self.place)(directory).map_or(u64::MAX, |place| place.size);
            if count > 1 && count.saturating_mul(LIST_SHARE) >= size / ENTRY_BYTES {
                listed.entry(directory).or_insert(at_ms);
            }
        }
        let mut in_order: Vec<_> = listed.iter().map(|(ino, at_ms)| (*at_ms, *ino)).collect();
        in_order.sort_unstable();
        for (at_ms, directory) in in_order {
            if let Some(place) = (self.place)(directory) {
                let _ = builder.list(at_ms, &place.path);
            }
        }
        listed.into_keys().collect()
    }

    /// Adds the lookups of names. Files that are read need none, since opening a file looks it up,
    /// and neither do entries of listed directories.
    fn look_up(&self, builder: &mut Builder, listed: &HashSet<u64>) {
        for looked_up in &self.recording.names {
            let is_known = looked_up.found.is_some_and(|found| {
                self.read.contains(&found) || listed.contains(&looked_up.directory)
            });
            if !is_known && let Some(directory) = (self.place)(looked_up.directory) {
                let path = joined(&directory.path, &looked_up.name);
                let _ = builder.look_up(looked_up.at_ms, &path);
            }
        }
        for (link, at_ms) in &self.recording.links {
            if let Some(place) = (self.place)(*link) {
                let _ = builder.look_up(*at_ms, &place.path);
            }
        }
    }

    fn read(&self, builder: &mut Builder) {
        let mut files: HashMap<u64, Option<u32>> = HashMap::new();
        for window in &self.recording.windows {
            let file = *files.entry(window.ino).or_insert_with(|| {
                let place = (self.place)(window.ino)?;
                let is_file = FileType::from_raw_mode(place.mode) == FileType::RegularFile;
                is_file.then(|| builder.file(place.size, &place.path).ok())?
            });
            if let Some(file) = file {
                let _ = builder.read(window.at_ms, file, window.number, window.pages);
            }
        }
    }
}

/// The path of a name in a directory, both relative to the root of the mount.
pub fn joined(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        [] => name.to_vec(),
        directory => [directory, name].join(&b'/'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_is_told_by_names_in_its_order() {
        let place = |ino| {
            let of = |path: &str, size, mode| Place {
                path: path.into(),
                size,
                mode,
            };
            Some(match ino {
                1 => of("", 0, libc_dir()),
                2 => of("lib", 24 * 60, libc_dir()),
                3 => of("lib/many", 24 * 12, libc_dir()),
                10 => of("lib/a.so", 5000, 0o100_644),
                11 => of("lib/many/x", 1, 0o100_644),
                12 => of("lib/many/y", 1, 0o100_644),
                13 => of("link", 1, 0o120_777),
                _ => return None,
            })
        };
        let mut recording = Recording::default();
        recording.looked_up(1, b"lib", Some(2));
        recording.looked_up(2, b"a.so", Some(10));
        recording.read(10, 0, 8192);
        recording.now_ms = 4;
        recording.looked_up(2, b"none", None);
        recording.looked_up(2, b"stat", Some(77));
        recording.looked_up(3, b"x", Some(11));
        recording.looked_up(3, b"y", Some(12));
        recording.looked_up(3, b"z", None);
        recording.read(11, 0, 1);
        recording.read(99, 0, 1);
        recording.read_link(13);
        let expected = "\
file 5000 lib/a.so
read 0 0-1
list 4 lib/many
name 4 lib/none
name 4 lib/stat
name 4 lib/many/z
name 4 link
file 1 lib/many/x
read 4 0
";
        let text = profile(&recording, &place).to_text();
        // Directories on the path to a file may be looked up as well.
        let text = text.replace("name 0 lib\n", "");
        assert_eq!(text, expected);
    }

    fn libc_dir() -> u32 {
        0o040_755
    }
}
