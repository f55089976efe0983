//! Holes in a tar stream: GNU tar's sparse format 1.0, which libarchive and Python read too.
//!
//! The content of such a member is a map (decimal numbers, one per line: a count, then offset and
//! length of each data segment), padded to a block, and then the data. Readers disagree on whether
//! every segment is padded to a whole block, so all segments but the last consist of whole blocks.

use std::ops::Range;

use crate::tools::parts::{Part, Parts};

use super::tar::BLOCK;

/// Holes shorter than this are written as zeros.
const HOLE: u64 = 64 << 10;
/// Maximum number of holes left out of a file, because its map is kept in memory.
const HOLES: usize = 1 << 16;

/// A segment of a file that is written, or the fault that replaces it.
pub enum Segment {
    /// Data, as in [`Part`].
    Data(Range<u64>),
    Zeros(u64),
    Fault(String),
}

/// The segments of a file in order, without its long holes.
pub fn segments(parts: Parts<'_>) -> impl Iterator<Item = Segment> {
    let mut holes = 0;
    merged(parts).flat_map(move |part| {
        match part {
            Part::Data(range) => [Some(Segment::Data(range)), None],
            Part::Fault { error, .. } => [Some(Segment::Fault(error)), None],
            Part::Hole(range) => {
                let left_out = left_out(&range, &mut holes);
                [range.start..left_out.start, left_out.end..range.end].map(zeros)
            }
        }
        .into_iter()
        .flatten()
    })
}

fn zeros(range: Range<u64>) -> Option<Segment> {
    (!range.is_empty()).then(|| Segment::Zeros(range.end - range.start))
}

/// The whole blocks of a hole, which are left out; none for a short one.
fn left_out(hole: &Range<u64>, holes: &mut usize) -> Range<u64> {
    let block = BLOCK as u64;
    let inner = hole.start.next_multiple_of(block)..hole.end / block * block;
    if hole.end - hole.start < HOLE || *holes == HOLES {
        return hole.end..hole.end;
    }
    *holes += 1;
    inner
}

/// Merges adjacent holes of a file.
fn merged(parts: Parts<'_>) -> impl Iterator<Item = Part> {
    let mut parts = parts.peekable();
    std::iter::from_fn(move || {
        let mut part = parts.next()?;
        if let Part::Hole(range) = &mut part {
            while let Some(Part::Hole(more)) = parts.next_if(|next| matches!(next, Part::Hole(_))) {
                range.end = more.end;
            }
        }
        Some(part)
    })
}

/// The parts of a file that are written.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Map {
    data: Vec<Range<u64>>,
    /// Where the file, or its readable part, ends.
    end: u64,
    has_holes: bool,
}

impl Map {
    /// Creates a map from the parts of a file of `size` bytes. Everything after a fault is a hole:
    /// a broken file may claim more than any disk holds.
    pub fn of(parts: Parts<'_>, size: u64) -> Self {
        let (mut map, mut holes) = (Self::default(), 0);
        for part in merged(parts) {
            let hole = match part {
                Part::Data(range) => {
                    map.add(range);
                    continue;
                }
                Part::Fault { offset, .. } => offset..size,
                Part::Hole(range) => range,
            };
            let left_out = left_out(&hole, &mut holes);
            map.has_holes |= !left_out.is_empty();
            map.add(hole.start..left_out.start);
            map.end = left_out.end;
            map.add(left_out.end..hole.end);
        }
        map
    }

    fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.end = range.end;
        match self.data.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.data.push(range),
        }
    }

    /// Whether the map leaves out any hole.
    pub fn has_holes(&self) -> bool {
        self.has_holes
    }

    /// Number of bytes of data.
    pub fn data_bytes(&self) -> u64 {
        self.data.iter().map(|range| range.end - range.start).sum()
    }

    /// The map as text, which precedes the data. Its last line says where a trailing hole ends.
    pub fn text(&self, size: u64) -> Vec<u8> {
        let end = match self.data.last() {
            Some(last) if last.end == size => None,
            _ => Some(size..size),
        };
        let all = self.data.iter().chain(&end);
        let mut text = format!("{}\n", all.clone().count());
        for range in all {
            text += &format!("{}\n{}\n", range.start, range.end - range.start);
        }
        let mut text = text.into_bytes();
        text.resize(text.len().next_multiple_of(BLOCK), 0);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_holes_are_left_out_by_whole_blocks() {
        let mut holes = 0;
        assert_eq!(left_out(&(100..200_000), &mut holes), 512..199_680);
        assert!(left_out(&(100..60_000), &mut holes).is_empty());
        assert_eq!(holes, 1);
        holes = HOLES;
        assert!(left_out(&(100..200_000), &mut holes).is_empty());
    }

    #[test]
    fn a_map_joins_what_is_adjacent_and_ends_where_the_file_does() {
        let mut map = Map::default();
        map.add(0..100);
        map.add(100..512);
        map.add(4096..5000);
        let lines = |size| {
            let text = map.text(size);
            assert_eq!(text.len(), BLOCK);
            String::from_utf8(text)
                .expect("text")
                .trim_end_matches('\0')
                .replace('\n', " ")
        };
        assert_eq!(lines(5000), "2 0 512 4096 904 ");
        assert_eq!(lines(1 << 40), "3 0 512 4096 904 1099511627776 0 ");
        assert_eq!(map.data_bytes(), 1416);
        assert_eq!(Map::default().text(9)[..6], *b"1\n9\n0\n");
    }
}
