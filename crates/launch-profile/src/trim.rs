//! Trims a profile to a time or a size.

use std::collections::HashMap;

use crate::limits::{NAMES, PROFILE_BYTES, WINDOWS};
use crate::profile::{LookedUp, Name, Profile};

/// Limits for the trimmed profile; the default has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trim {
    /// Keep pages that were first read at most this many milliseconds after the beginning.
    pub until_ms: Option<u32>,
    /// Keep at most this many bytes of pages, in order; a window that would exceed the limit is
    /// dropped.
    pub bytes: Option<u64>,
}

impl Profile {
    /// Drops everything beyond the limits given, files of which nothing is left, and whatever
    /// exceeds the [limits](crate::limits).
    pub fn trim(&mut self, wanted: &Trim) {
        let mut bytes = 0;
        self.windows.retain(|window| {
            let more = bytes + window.bytes();
            let kept = wanted.until_ms.is_none_or(|limit| window.at_ms <= limit)
                && wanted.bytes.is_none_or(|limit| more <= limit);
            bytes = if kept { more } else { bytes };
            kept
        });
        self.names.sort_by_key(|name| name.at_ms);
        self.limit(WINDOWS, NAMES, NAMES);
        while self.to_text().len() > PROFILE_BYTES {
            let (windows, names) = (self.windows.len(), self.names.len());
            let directories = self.directories.len() * usize::from(windows + names > 0);
            self.limit(windows / 2, names / 2, directories);
        }
    }

    /// Keeps the first entries of each list, up to these numbers, and the files that have a window,
    /// in the order of the windows. The contents of a dropped directory are dropped too.
    fn limit(&mut self, windows: usize, names: usize, directories: usize) {
        self.windows.truncate(windows);
        self.names.truncate(names);
        self.directories.truncate(directories);
        let there = |name: &Name| name.directory.is_none_or(|it| (it as usize) < directories);
        self.names.retain(|LookedUp { name, .. }| there(name));
        let files = std::mem::take(&mut self.files);
        let mut places: HashMap<u32, u32> = HashMap::new();
        self.windows.retain_mut(|window| {
            let file = files.get(window.file as usize);
            let next = self.files.len();
            let Some(file) = file.filter(|file| there(&file.name) && next < NAMES) else {
                return false;
            };
            window.file = *places.entry(window.file).or_insert_with(|| {
                self.files.push(file.clone());
                next as u32
            });
            true
        });
    }
}
