//! The requests of a launch, by inode number.

use std::collections::{HashMap, HashSet};

use launch_profile::{PAGE, PAGES_PER_WINDOW, limits};

/// A file with fewer windows (less than 2 MiB) does not show how it was read.
const MANY_WINDOWS: usize = 16;
/// Requests for neighbouring windows may overtake each other by up to this many windows.
const OVERTAKEN: u32 = 3;

/// Pages of one window of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawWindow {
    pub(crate) ino: u64,
    pub(crate) number: u32,
    pub(crate) pages: u32,
    pub(crate) at_ms: u32,
}

/// A name that was looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LookedUp {
    pub(crate) directory: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) found: Option<u64>,
    pub(crate) at_ms: u32,
}

/// All requests of a launch.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// In the order in which a page of each was first requested.
    pub(crate) windows: Vec<RawWindow>,
    places: HashMap<(u64, u32), usize>,
    /// Names that were looked up, with their directories, and their inodes if they exist.
    pub(crate) names: Vec<LookedUp>,
    seen: HashSet<(u64, Vec<u8>)>,
    /// Directories that were listed, with times.
    pub(crate) listed: Vec<(u64, u32)>,
    listed_once: HashSet<u64>,
    /// Symlinks that were read, with times.
    pub(crate) links: Vec<(u64, u32)>,
    /// Milliseconds since the recording began; set before each event is noted.
    pub(crate) now_ms: u32,
}

impl Recording {
    pub(crate) fn read(&mut self, ino: u64, offset: u64, length: u64) {
        /// The kernel's requests are never longer.
        const LONGEST: u64 = 256 << 20;
        let Some(last) = length.min(LONGEST).checked_sub(1) else {
            return;
        };
        let (first, last) = (offset / PAGE, offset.saturating_add(last) / PAGE);
        for page in first..=last {
            let number = page / u64::from(PAGES_PER_WINDOW);
            let bit = 1 << (page % u64::from(PAGES_PER_WINDOW));
            let Ok(number) = u32::try_from(number) else {
                return;
            };
            match self.places.get(&(ino, number)) {
                Some(&place) => self.windows[place].pages |= bit,
                None if self.windows.len() == limits::WINDOWS => return,
                None => {
                    self.places.insert((ino, number), self.windows.len());
                    self.windows.push(RawWindow {
                        ino,
                        number,
                        pages: bit,
                        at_ms: self.now_ms,
                    });
                }
            }
        }
    }

    pub(crate) fn looked_up(&mut self, directory: u64, name: &[u8], found: Option<u64>) {
        let has_room = self.names.len() < limits::NAMES;
        if has_room && self.seen.insert((directory, name.to_vec())) {
            self.names.push(LookedUp {
                directory,
                name: name.to_vec(),
                found,
                at_ms: self.now_ms,
            });
        }
    }

    pub(crate) fn listed(&mut self, directory: u64) {
        if self.listed.len() < limits::NAMES && self.listed_once.insert(directory) {
            self.listed.push((directory, self.now_ms));
        }
    }

    pub(crate) fn read_link(&mut self, ino: u64) {
        if self.links.len() < limits::NAMES {
            self.links.push((ino, self.now_ms));
        }
    }

    /// The number of directories used.
    pub(crate) fn directories(&self) -> usize {
        let looked_in = self.names.iter().map(|name| name.directory);
        let all: HashSet<u64> = looked_in.chain(self.listed_once.iter().copied()).collect();
        all.len()
    }

    /// Whether most of the large files were read in order from beginning to end, as a copy or a
    /// search does. A launch maps its files and reads them here and there. `length` returns the
    /// length of a file in bytes.
    pub(crate) fn is_copy(&self, length: impl Fn(u64) -> Option<u64>) -> bool {
        let mut files: HashMap<u64, Vec<&RawWindow>> = HashMap::new();
        for window in &self.windows {
            files.entry(window.ino).or_default().push(window);
        }
        files.retain(|_, windows| windows.len() >= MANY_WINDOWS);
        let copied = files.iter().filter(|(ino, windows)| {
            length(**ino).is_some_and(|length| are_most(windows, length)) && are_in_order(windows)
        });
        2 * copied.count() > files.len()
    }
}

/// Whether windows cover at least three quarters of a file; the rest may have been replayed.
fn are_most(windows: &[&RawWindow], length: u64) -> bool {
    let pages = |window: &&RawWindow| u64::from(window.pages.count_ones());
    4 * windows.iter().map(pages).sum::<u64>() >= 3 * length.div_ceil(PAGE)
}

fn are_in_order(windows: &[&RawWindow]) -> bool {
    let steps = windows.windows(2);
    let near = |pair: &&[&RawWindow]| pair[0].number.abs_diff(pair[1].number) <= OVERTAKEN;
    steps.filter(near).count() * 8 >= (windows.len() - 1) * 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_read_from_begin_to_end_are_copied() {
        const WINDOW: u64 = PAGES_PER_WINDOW as u64 * PAGE;
        let read = |numbers: &mut dyn Iterator<Item = u64>| {
            let mut recording = Recording::default();
            numbers.for_each(|number| recording.read(7, number * WINDOW, WINDOW));
            recording
        };
        let whole = |_| Some(20 * WINDOW - 5);
        assert!(read(&mut (0..20)).is_copy(whole));
        assert!(
            read(&mut (0..20).map(|number| number ^ 1)).is_copy(whole),
            "overtaken"
        );
        assert!(read(&mut (0..16)).is_copy(whole), "the rest was replayed");
        assert!(
            !read(&mut (0..20).map(|number| 7 * number % 20)).is_copy(whole),
            "mapped"
        );
        assert!(
            !read(&mut (0..8)).is_copy(|_| Some(8 * WINDOW)),
            "a small file"
        );
        let mut both = read(&mut (0..20));
        (0..16).for_each(|number| both.read(8, 9 * number * WINDOW, 1));
        assert!(!both.is_copy(whole), "data of a program");
    }

    #[test]
    fn pages_are_kept_in_the_order_of_their_windows() {
        let mut recording = Recording::default();
        recording.read(7, 5 * PAGE + 1, 4096);
        recording.now_ms = 3;
        recording.read(9, 31 * PAGE, 2 * 4096);
        recording.read(7, 0, 1);
        recording.read(7, 4096, 0);
        let window = |ino, number, pages, at_ms| RawWindow {
            ino,
            number,
            pages,
            at_ms,
        };
        assert_eq!(
            recording.windows,
            [
                window(7, 0, 0b110_0001, 0),
                window(9, 0, 1 << 31, 3),
                window(9, 1, 1, 3)
            ]
        );
    }

    #[test]
    fn a_name_and_a_listing_come_once() {
        let mut recording = Recording::default();
        recording.looked_up(1, b"a", Some(7));
        recording.now_ms = 5;
        recording.looked_up(1, b"a", Some(7));
        recording.looked_up(2, b"a", None);
        recording.listed(1);
        recording.listed(1);
        let found: Vec<_> = recording
            .names
            .iter()
            .map(|it| (it.directory, it.found))
            .collect();
        assert_eq!(found, [(1, Some(7)), (2, None)]);
        assert_eq!(recording.listed, [(1, 5)]);
    }
}
