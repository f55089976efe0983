//! Adds one profile to another.

use std::collections::{HashMap, HashSet};

use crate::profile::{Directory, Name, Profile, RecordedFile, Window};
use crate::trim::Trim;

impl Profile {
    /// Adds what `other`, of the same image, has more, behind what is there, within the
    /// [limits](crate::limits).
    pub fn merge(&mut self, other: &Self) {
        let places = self.add_directories(&other.directories);
        let moved = |name: &Name| Name {
            directory: name.directory.map(|directory| places[directory as usize]),
            name: name.name.clone(),
        };
        let known: HashSet<Name> = self.names.iter().cloned().collect();
        let names = other.names.iter().map(moved);
        let new: Vec<Name> = names.filter(|name| !known.contains(name)).collect();
        self.names.extend(new);
        let files = self.add_files(other, moved);
        self.add_windows(other.windows.iter().map(|window| Window {
            file: files[window.file as usize],
            ..*window
        }));
        self.trim(&Trim::default());
    }

    /// Returns their places.
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
                Some(own) => own.listed |= other.listed,
                None => self.directories.push(Directory {
                    parent,
                    ..other.clone()
                }),
            }
            places.push(place);
        }
        places
    }

    /// Returns their places.
    fn add_files(&mut self, other: &Self, moved: impl Fn(&Name) -> Name) -> Vec<u32> {
        let own = (0..).zip(&self.files);
        let mut known: HashMap<u64, u32> = own.map(|(place, own)| (own.nid, place)).collect();
        let place = |file: &RecordedFile| {
            let next = self.files.len() as u32;
            let place = *known.entry(file.nid).or_insert(next);
            if place == next {
                let name = moved(&file.name);
                self.files.push(RecordedFile {
                    name,
                    ..file.clone()
                });
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
