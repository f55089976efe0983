//! ELF files that were opened: which of them a loader maps, and what it reads next.
//!
//! Programs that read the first page of a file alone, `file` for instance, need nothing else. A
//! loader reads the dynamic section as soon as it has mapped a file.

use std::collections::VecDeque;
use std::ops::Range;

use erofs_engine::erofs_format::Nid;

use super::elf::LoaderRanges;

/// Bytes that are stored at once.
const PART: u64 = 128 << 10;

/// Reads of any file after which one that was opened is forgotten.
const MOST_READS: u64 = 64;

/// Files that are opened at the same time.
const MOST_OPENED: usize = 32;

/// A part of a file.
pub(super) type Part = (Nid, Range<u64>);

#[derive(Debug, Default)]
pub(super) struct Loaders {
    /// Files whose ranges are not known yet.
    pub(super) unknown: Vec<Nid>,
    opened: VecDeque<Opened>,
    /// The next one last. The file that was opened last comes first: a loader opens all libraries,
    /// and then begins with the last.
    pub(super) parts: Vec<Part>,
    reads: u64,
}

/// A file whose first page was read.
#[derive(Debug)]
struct Opened {
    nid: Nid,
    /// Reads of any file before it.
    since: u64,
    /// Its reads.
    read: Vec<Range<u64>>,
    ranges: Option<LoaderRanges>,
}

impl Loaders {
    /// The first page of an ELF file was read.
    pub(super) fn open(&mut self, nid: Nid) {
        self.opened.truncate(MOST_OPENED - 1);
        self.opened.push_front(Opened {
            nid,
            since: self.reads,
            read: Vec::new(),
            ranges: None,
        });
        self.unknown.truncate(MOST_OPENED - 1);
        self.unknown.push(nid);
    }

    /// What a loader reads of a file.
    pub(super) fn known(&mut self, nid: Nid, ranges: LoaderRanges) {
        let opened = self.opened.iter_mut().find(|opened| opened.nid == nid);
        if let Some(opened) = opened {
            opened.ranges = Some(ranges);
            self.begin(nid);
        }
    }

    /// A file was read: parts inside of the range are not to be stored any more.
    pub(super) fn read(&mut self, nid: Nid, range: &Range<u64>) {
        self.reads += 1;
        let is_inside = |part: &Range<u64>| range.start <= part.start && part.end <= range.end;
        let is_wanted = |(file, part): &Part| *file != nid || !is_inside(part);
        self.parts.retain(is_wanted);
        let reads = self.reads;
        self.opened
            .retain(|opened| reads - opened.since <= MOST_READS);
        if let Some(opened) = self.opened.iter_mut().find(|opened| opened.nid == nid) {
            opened.read.push(range.clone());
            self.begin(nid);
        }
    }

    /// Reads may change something.
    pub(super) fn is_watching(&self) -> bool {
        !self.opened.is_empty() || !self.parts.is_empty()
    }

    /// Adds the parts of a file whose dynamic section was read.
    fn begin(&mut self, nid: Nid) {
        let is_due = |opened: &Opened| {
            let dynamic = opened.ranges.as_ref().map(|ranges| ranges.dynamic);
            let is_read = |at| opened.read.iter().any(|range| range.contains(&at));
            opened.nid == nid && dynamic.is_some_and(is_read)
        };
        let at = self.opened.iter().position(is_due);
        let opened = at.and_then(|at| self.opened.remove(at));
        if let Some(ranges) = opened.and_then(|opened| opened.ranges) {
            let last_first = ranges.ranges.into_iter().rev();
            self.parts.extend(last_first.flat_map(|range| {
                let number = |at: u64| at / PART;
                let numbers = number(range.start)..number(range.end - 1) + 1;
                numbers.rev().map(move |number| {
                    let (start, end) = (number * PART, (number + 1) * PART);
                    (nid, range.start.max(start)..range.end.min(end))
                })
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(dynamic: u64, range: Range<u64>) -> LoaderRanges {
        LoaderRanges {
            dynamic,
            ranges: vec![range, 0..10],
        }
    }

    #[test]
    fn the_file_that_was_opened_last_comes_first_without_what_was_read() {
        let mut loaders = Loaders::default();
        loaders.open(7);
        loaders.open(8);
        loaders.known(7, ranges(PART, PART - 1..2 * PART));
        assert!(loaders.parts.is_empty());
        loaders.read(7, &(PART..2 * PART));
        loaders.read(8, &(5 * PART..6 * PART));
        loaders.known(8, ranges(5 * PART, PART..3 * PART));
        loaders.read(8, &(PART..2 * PART));
        let next = std::iter::from_fn(|| loaders.parts.pop());
        let expected = [
            (8, 2 * PART..3 * PART),
            (8, 0..10),
            (7, PART - 1..PART),
            (7, PART..2 * PART),
            (7, 0..10),
        ];
        assert_eq!(next.collect::<Vec<_>>(), expected);
        assert!(!loaders.is_watching());
    }

    #[test]
    fn files_that_nobody_maps_are_forgotten() {
        let mut loaders = Loaders::default();
        (0..100).for_each(|nid| loaders.open(nid));
        assert_eq!(loaders.opened.len(), MOST_OPENED);
        loaders.known(99, ranges(PART, 0..PART));
        (0..=MOST_READS).for_each(|_| loaders.read(99, &(0..PART)));
        assert!(!loaders.is_watching());
    }
}
