//! A profile in memory.

use std::ops::Range;

/// Size in bytes of a page, the unit of a profile, whatever the machine's page size is.
pub const PAGE: u64 = 4096;

/// Pages in one [`Window`].
pub const PAGES_PER_WINDOW: u32 = 32;

/// The requests of a launch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Profile {
    /// Directories that were listed or in which names were looked up, parents before their
    /// children. The root, which is always listed, is not among them.
    pub directories: Vec<Directory>,
    /// Files that were read, in the order of their first page.
    pub files: Vec<RecordedFile>,
    /// Names, including absent ones, that were looked up in addition to the names of files that
    /// were read.
    pub names: Vec<LookedUp>,
    /// Pages that were read, in the order of the first page of each window.
    pub windows: Vec<Window>,
}

/// A directory of the image.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Directory {
    /// Index of the parent in [`Profile::directories`]; `None` for the root of the mount.
    pub parent: Option<u32>,
    /// The time, in milliseconds from the beginning of the launch, from which all entries are
    /// wanted, because the launch lists the directory or looks up many names in it.
    pub listed_ms: Option<u32>,
    /// The directory's name in its parent.
    pub name: Vec<u8>,
}

/// A name in a directory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Name {
    /// Index in [`Profile::directories`]; `None` for the root of the mount.
    pub directory: Option<u32>,
    /// The name.
    pub name: Vec<u8>,
}

/// A name that was looked up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LookedUp {
    /// The name, which may be absent.
    pub name: Name,
    /// Time in milliseconds from the beginning of the launch.
    pub at_ms: u32,
}

/// One step of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Step<'p> {
    /// Lists the directory with this index in [`Profile::directories`], after this many
    /// milliseconds.
    List(u32, u32),
    /// Looks up a name.
    LookUp(&'p LookedUp),
    /// Reads pages of a file.
    Read(&'p Window),
}

/// A file that was read.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RecordedFile {
    /// The file's directory and name.
    pub name: Name,
    /// Size in bytes: a file of a different size is a different file.
    pub size: u64,
}

/// Up to 32 pages of a file that begin at a multiple of 128 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Index in [`Profile::files`].
    pub file: u32,
    /// The window begins at page `number * 32` of the file.
    pub number: u32,
    /// Bit N is set if page N of the window was read. Never 0.
    pub pages: u32,
    /// Milliseconds from the beginning of the launch to the first read of a page in the window.
    pub at_ms: u32,
}

impl Window {
    /// Offset of the window in the file, in bytes.
    pub fn offset(&self) -> u64 {
        u64::from(self.number) * u64::from(PAGES_PER_WINDOW) * PAGE
    }

    /// Total size in bytes of the pages that were read.
    pub fn bytes(&self) -> u64 {
        u64::from(self.pages.count_ones()) * PAGE
    }

    /// The pages that were read, as stretches of the file in order: offset and length in bytes.
    pub fn stretches(&self) -> impl Iterator<Item = (u64, u64)> + use<> {
        let offset = self.offset();
        let bytes = |pages: u32| u64::from(pages) * PAGE;
        let stretches = self.page_stretches();
        stretches.map(move |(from, length)| (offset + bytes(from), bytes(length)))
    }

    /// Like [`stretches`](Self::stretches), but counted in pages from the beginning of the window.
    pub(crate) fn page_stretches(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let (mut rest, mut at) = (self.pages, 0);
        std::iter::from_fn(move || {
            if rest == 0 {
                return None;
            }
            let gap = rest.trailing_zeros();
            rest >>= gap;
            let length = rest.trailing_ones();
            rest = rest.checked_shr(length).unwrap_or(0);
            let from = at + gap;
            at = from + length;
            Some((from, length))
        })
    }
}

impl Profile {
    /// The steps of the launch, in order.
    pub fn steps(&self) -> impl Iterator<Item = Step<'_>> {
        let listed = (0..).zip(&self.directories);
        let listed = listed.filter_map(|(place, it)| Some((place, it.listed_ms?)));
        let lists = listed.map(|(place, at_ms)| (at_ms, Step::List(place, at_ms)));
        let names = self
            .names
            .iter()
            .map(|name| (name.at_ms, Step::LookUp(name)));
        let reads = self.windows.iter();
        let reads = reads.map(|window| (window.at_ms, Step::Read(window)));
        let mut steps: Vec<_> = lists.chain(names).chain(reads).collect();
        // A stable sort: windows stay after the names of the same millisecond.
        steps.sort_by_key(|(at_ms, _)| *at_ms);
        steps.into_iter().map(|(_, step)| step)
    }

    /// Total size in bytes of all recorded pages.
    pub fn bytes(&self) -> u64 {
        let ranges = self.ranges();
        ranges.map(|(_, range)| range.end - range.start).sum()
    }

    /// The ranges of all recorded pages, cut off at the end of the file, each with its file.
    pub fn ranges(&self) -> impl Iterator<Item = (&RecordedFile, Range<u64>)> {
        self.windows.iter().flat_map(|window| {
            let file = &self.files[window.file as usize];
            let inside = |at: u64| at.min(file.size);
            let stretches = window.stretches();
            stretches.map(move |(at, length)| (file, inside(at)..inside(at + length)))
        })
    }

    /// Milliseconds from the beginning of the launch to the last window.
    pub fn lasts_ms(&self) -> u32 {
        self.windows.last().map_or(0, |window| window.at_ms)
    }

    /// The path of a directory from the root of the mount, without a slash at either end.
    pub fn directory_path(&self, directory: Option<u32>) -> Vec<u8> {
        let mut names: Vec<&[u8]> = Vec::new();
        let mut next = directory;
        // Parents come before their children, so this terminates.
        while let Some(one) = next.and_then(|index| self.directories.get(index as usize)) {
            names.push(&one.name);
            next = one.parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// The path of a name from the root of the mount.
    pub fn path(&self, name: &Name) -> Vec<u8> {
        let mut path = self.directory_path(name.directory);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend(&name.name);
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(pages: u32) -> Window {
        Window {
            file: 0,
            number: 1,
            pages,
            at_ms: 0,
        }
    }

    #[test]
    fn pages_side_by_side_are_one_stretch() {
        let at = |page: u64| (32 + page) * PAGE;
        let stretches = |pages| window(pages).stretches().collect::<Vec<_>>();
        assert_eq!(stretches(0b1), [(at(0), PAGE)]);
        assert_eq!(
            stretches(0b1101_1000),
            [(at(3), 2 * PAGE), (at(6), 2 * PAGE)]
        );
        assert_eq!(stretches(u32::MAX), [(at(0), 32 * PAGE)]);
        assert_eq!(stretches(1 << 31), [(at(31), PAGE)]);
    }

    #[test]
    fn paths_have_no_slash_at_either_end() {
        let directory = |parent, name: &[u8]| Directory {
            parent,
            listed_ms: Some(0),
            name: name.to_vec(),
        };
        let profile = Profile {
            directories: vec![directory(None, b"usr"), directory(Some(0), b"lib")],
            ..Profile::default()
        };
        let path = |directory| {
            let name = Name {
                directory,
                name: b"a.so".to_vec(),
            };
            String::from_utf8(profile.path(&name)).unwrap()
        };
        assert_eq!([path(None), path(Some(1))], ["a.so", "usr/lib/a.so"]);
        assert_eq!(profile.directory_path(None), b"");
    }
}
