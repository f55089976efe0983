//! The requests of a launch, by inode number.

use std::collections::{HashMap, HashSet};

use erofs_engine::erofs_format::Nid;
use launch_profile::{PAGE, PAGES_PER_WINDOW, limits};

/// A file with fewer windows, 2 MiB, does not show how it was read.
const MANY_WINDOWS: usize = 16;
/// Requests for neighbouring windows may overtake each other by so many.
const OVERTAKEN: u32 = 3;

/// Pages of one window of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawWindow {
    pub(super) nid: Nid,
    pub(super) number: u32,
    pub(super) pages: u32,
    pub(super) at_ms: u32,
}

/// All requests of a launch.
#[derive(Debug, Default)]
pub(super) struct Recording {
    /// In the order of their first page.
    pub(super) windows: Vec<RawWindow>,
    places: HashMap<(Nid, u32), usize>,
    /// Directories in which names were looked up or that were listed, in this order.
    pub(super) directories: Vec<Nid>,
    seen: HashSet<Nid>,
    /// Those that were listed.
    pub(super) listed: HashSet<Nid>,
    /// Names that are not there.
    pub(super) absent: Vec<(Nid, Vec<u8>)>,
    pub(super) links: HashSet<Nid>,
    /// Set before each note, ms since the recording began.
    pub(super) now_ms: u32,
}

impl Recording {
    pub(super) fn read(&mut self, nid: Nid, offset: u64, length: usize) {
        let Some(last) = (length as u64).checked_sub(1) else {
            return;
        };
        let (first, last) = (offset / PAGE, offset.saturating_add(last) / PAGE);
        for page in first..=last {
            let number = page / u64::from(PAGES_PER_WINDOW);
            let bit = 1 << (page % u64::from(PAGES_PER_WINDOW));
            let Ok(number) = u32::try_from(number) else {
                return;
            };
            match self.places.get(&(nid, number)) {
                Some(&place) => self.windows[place].pages |= bit,
                None if self.windows.len() == limits::WINDOWS => return,
                None => {
                    self.places.insert((nid, number), self.windows.len());
                    self.windows.push(RawWindow {
                        nid,
                        number,
                        pages: bit,
                        at_ms: self.now_ms,
                    });
                }
            }
        }
    }

    /// The name if it is not there.
    pub(super) fn looked_up(&mut self, directory: Nid, absent: Option<Box<[u8]>>) {
        self.saw(directory);
        if let Some(name) = absent.filter(|_| self.absent.len() < limits::NAMES) {
            self.absent.push((directory, name.into()));
        }
    }

    pub(super) fn listed(&mut self, directory: Nid) {
        self.saw(directory);
        self.listed.insert(directory);
    }

    pub(super) fn read_link(&mut self, nid: Nid) {
        if self.links.len() < limits::NAMES {
            self.links.insert(nid);
        }
    }

    /// Whether most of the large files were read from begin to end, in this order: by a copy or a
    /// search. A launch maps its files, and reads them here and there. `length`: bytes of a file.
    pub(super) fn is_copy(&self, length: impl Fn(Nid) -> Option<u64>) -> bool {
        let mut files: HashMap<Nid, Vec<&RawWindow>> = HashMap::new();
        for window in &self.windows {
            files.entry(window.nid).or_default().push(window);
        }
        files.retain(|_, windows| windows.len() >= MANY_WINDOWS);
        let copied = files.iter().filter(|(nid, windows)| {
            length(**nid).is_some_and(|length| are_most(windows, length)) && are_in_order(windows)
        });
        2 * copied.count() > files.len()
    }

    /// A directory was used.
    pub(super) fn saw(&mut self, directory: Nid) {
        if self.seen.len() < limits::NAMES && self.seen.insert(directory) {
            self.directories.push(directory);
        }
    }
}

/// The others were replayed.
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
            numbers.for_each(|number| recording.read(7, number * WINDOW, WINDOW as usize));
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
        let window = |nid, number, pages, at_ms| RawWindow {
            nid,
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
    fn a_directory_comes_once_however_it_was_used() {
        let mut recording = Recording::default();
        recording.looked_up(1, None);
        recording.looked_up(2, Some(b"b"[..].into()));
        recording.listed(1);
        assert_eq!(recording.directories, [1, 2]);
        assert!(recording.listed.contains(&1) && !recording.listed.contains(&2));
        assert_eq!(recording.absent, [(2, b"b".to_vec())]);
    }
}
