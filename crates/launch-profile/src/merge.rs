//! Adds one profile to another.

use std::collections::{HashMap, HashSet};

use crate::profile::{Directory, LookedUp, Name, Profile, RecordedFile, Window};
use crate::trim::Trim;

impl Profile {
    /// Appends everything that is missing here and present in `other`, a profile of the same image,
    /// within the [limits](crate::limits).
    pub fn merge(&mut self, other: &Self) {
        let places = self.add_directories(&other.directories);
        let moved = |name: &Name| Name {
            directory: name.directory.map(|directory| places[directory as usize]),
            name: name.name.clone(),
        };
        let known = self.names.iter().map(|known| known.name.clone());
        let mut known: HashSet<Name> = known.collect();
        for LookedUp { name, at_ms } in &other.names {
            let (name, at_ms) = (moved(name), *at_ms);
            if known.insert(name.clone()) {
                self.names.push(LookedUp { name, at_ms });
            }
        }
        let files = self.add_files(other, moved);
        self.add_windows(other.windows.iter().map(|window| Window {
            file: files[window.file as usize],
            ..*window
        }));
        self.trim(&Trim::default());
    }

    /// Adds directories that are missing here; returns, for each of `others`, its index in this
    /// profile.
    fn add_directories(&mut self, others: &[Directory]) -> Vec<u32> {
        let own = (0..).zip(&self.directories);
        let mut known: HashMap<(Option<u32>, Vec<u8>), u32> = own
            .map(|(place, own)| ((own.parent, own.name.clone()), place))
            .collect();
        let mut places: Vec<u32> = Vec::with_capacity(others.len());
        for other in others {
            let parent = other.parent.map(|parent| places[parent as usize]);
            let next = self.directories.len() as u32;
            let place = *known.entry((parent, other.name.clone())).or_insert(next);
            match self.directories.get_mut(place as usize) {
                Some(own) => own.listed_ms = own.listed_ms.or(other.listed_ms),
                None => self.directories.push(Directory {
                    parent,
                    ..other.clone()
                }),
            }
            places.push(place);
        }
        places
    }

    /// Adds files that are missing here; returns, for each file of `other`, its index in this
    /// profile.
    fn add_files(&mut self, other: &Self, moved: impl Fn(&Name) -> Name) -> Vec<u32> {
        let own = (0..).zip(self.files.iter().cloned());
        let mut known: HashMap<RecordedFile, u32> = own.map(|(place, own)| (own, place)).collect();
        let place = |file: &RecordedFile| {
            let (next, size) = (self.files.len() as u32, file.size);
            let file = RecordedFile {
                name: moved(&file.name),
                size,
            };
            let place = *known.entry(file.clone()).or_insert(next);
            if place == next {
                self.files.push(file);
            }
            place
        };
        other.files.iter().map(place).collect()
    }

    fn add_windows(&mut self, others: impl Iterator<Item = Window>) {
        let own = self.windows.iter().enumerate();
        let mut known: HashMap<(u32, u32), usize> = own
            .map(|(place, own)| ((own.file, own.number), place))
            .collect();
        let mut last = self.lasts_ms();
        for other in others {
            let next = self.windows.len();
            let place = *known.entry((other.file, other.number)).or_insert(next);
            if let Some(own) = self.windows.get_mut(place) {
                own.pages |= other.pages;
                continue;
            }
            last = last.max(other.at_ms);
            self.windows.push(Window {
                at_ms: last,
                ..other
            });
        }
    }
}
