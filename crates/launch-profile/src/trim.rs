//! Trims a profile to a time or a size.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::limits::{NAMES, PROFILE_BYTES, WINDOWS};
use crate::profile::{Name, Profile, Window};

/// Limits of the trimmed profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trim {
    /// Pages that were first read this many milliseconds after the beginning, or earlier.
    pub until_ms: u32,
    /// At most this many bytes of pages, the first ones.
    pub bytes: u64,
}

impl Default for Trim {
    /// Everything.
    fn default() -> Self {
        Self {
            until_ms: u32::MAX,
            bytes: u64::MAX,
        }
    }
}

impl Profile {
    /// Leaves out what is not wanted, files of which nothing is left, and what exceeds the
    /// [limits](crate::limits).
    pub fn trim(&mut self, wanted: &Trim) {
        let mut bytes = 0;
        self.windows.retain(|window| {
            let kept = window.at_ms <= wanted.until_ms && bytes + window.bytes() <= wanted.bytes;
            bytes += if kept { window.bytes() } else { 0 };
            kept
        });
        self.windows.truncate(WINDOWS);
        self.names.truncate(NAMES);
        self.drop_unread_files();
        while self.to_bytes().len() > PROFILE_BYTES {
            self.windows.truncate(self.windows.len() / 2);
            self.names.truncate(self.names.len() / 2);
            self.drop_unread_files();
        }
    }

    /// Files in the order of their first window, without those that have none; directories without
    /// those that nothing names any more.
    fn drop_unread_files(&mut self) {
        let mut files = Vec::new();
        let mut places: HashMap<u32, u32> = HashMap::new();
        let mut windows: Vec<Window> = Vec::with_capacity(self.windows.len());
        for window in &self.windows {
            let Some(file) = self.files.get(window.file as usize) else {
                continue;
            };
            let full = files.len() == NAMES;
            let file = match places.entry(window.file) {
                Entry::Occupied(place) => *place.get(),
                Entry::Vacant(_) if full => continue,
                Entry::Vacant(place) => {
                    files.push(file.clone());
                    *place.insert(files.len() as u32 - 1)
                }
            };
            windows.push(Window { file, ..*window });
        }
        (self.files, self.windows) = (files, windows);
        self.limit_directories();
    }

    /// At most as many directories as may be; names in others go.
    fn limit_directories(&mut self) {
        self.directories.truncate(NAMES);
        let known = self.directories.len();
        let there = |name: &Name| name.directory.is_none_or(|index| (index as usize) < known);
        self.names.retain(there);
        if self.files.iter().all(|file| there(&file.name)) {
            return;
        }
        let files = std::mem::take(&mut self.files);
        let gone: Vec<bool> = files.iter().map(|file| !there(&file.name)).collect();
        self.windows.retain(|window| !gone[window.file as usize]);
        self.files = files;
        self.drop_unread_files();
    }
}
