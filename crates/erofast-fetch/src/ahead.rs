//! Fetches blocks near those that were read, and then the rest of small images, while the link is
//! idle.
//!
//! Programs read related files and the parts of a file one after another, and each read of a
//! missing block costs a round trip. The next read is often nearby: files of a directory are stored
//! together, as are the parts of a file.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::{Rc, Weak};

/// Maximum number of spots, and of related ranges, that are remembered for an image.
const MOST_SPOTS: usize = 16;

/// Blocks of the same file count as near at up to this many times the usual distance from a read.
const FILE: u64 = 5;

/// The images of the process in the order of their last reads.
#[derive(Debug)]
pub struct LastRead<I>(RefCell<Vec<Weak<I>>>);

impl<I> Default for LastRead<I> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

impl<I> LastRead<I> {
    /// Adds an image, or notes that it was read.
    pub fn note(&self, image: &Rc<I>) {
        let mut images = self.0.borrow_mut();
        images.retain(|other| other.strong_count() > 0 && other.as_ptr() != Rc::as_ptr(image));
        images.push(Rc::downgrade(image));
    }

    /// The images, most recently read first.
    pub fn images(&self) -> Vec<Rc<I>> {
        let images = self.0.borrow();
        images.iter().rev().filter_map(Weak::upgrade).collect()
    }
}

/// Spots of an image that were read, most recent first, and how much of the rest of the image has
/// been considered.
#[derive(Debug, Default)]
pub struct Spots {
    near: VecDeque<Spot>,
    rest: Option<Spot>,
    /// Ranges whose blocks belong together, most recent first.
    related: VecDeque<Range<u64>>,
}

/// A place that was read. All its ranges are ranges of block numbers.
#[derive(Debug, Clone)]
struct Spot {
    /// The blocks that were read.
    read: Range<u64>,
    /// How many blocks on either side count as near.
    radius: u64,
    /// The blocks of the same file that the link can deliver soon.
    related: Range<u64>,
    /// The blocks that have been considered so far.
    seen: Range<u64>,
}

impl Spots {
    /// Notes a read. Blocks within a certain radius of it count as near: the radius is `near.start`
    /// at first, and doubles with each read near an earlier one, up to `near.end`.
    pub fn read(&mut self, blocks: Range<u64>, near: &Range<u64>) {
        let mut spot = Spot {
            read: blocks.clone(),
            radius: near.start,
            related: blocks.clone(),
            seen: blocks.clone(),
        };
        self.near.retain(|other| {
            let is_near = spot.is_near(other);
            if is_near {
                spot.radius = spot.radius.max((2 * other.radius).min(near.end));
            }
            !is_near
        });
        let reach = FILE * spot.radius;
        let mut related = self.related.iter();
        if let Some(range) = related.find(|range| range.contains(&blocks.start)) {
            let least = blocks.start.saturating_sub(reach);
            spot.related = range.start.max(least)..range.end.min(blocks.end + reach);
        }
        self.rest.get_or_insert_with(|| spot.clone());
        self.near.push_front(spot);
        self.near.truncate(MOST_SPOTS);
    }

    /// Notes that these blocks belong together; after one of them, the others are likely to be
    /// read.
    pub fn relate(&mut self, blocks: Range<u64>) {
        self.related.retain(|other| *other != blocks);
        self.related.push_front(blocks);
        self.related.truncate(MOST_SPOTS);
    }

    /// The next wanted blocks near a spot: at most `most` of them.
    pub fn next_near(&mut self, most: u64, wanted: impl Fn(u64) -> bool) -> Option<Range<u64>> {
        let next = |spot: &mut Spot| {
            let Range { start, end } = spot.read;
            let near = start.saturating_sub(spot.radius)..end + spot.radius;
            let related = &spot.related;
            let around = near.start.min(related.start)..near.end.max(related.end);
            spot.next(&around, most, &wanted)
        };
        self.near.iter_mut().find_map(next)
    }

    /// The next wanted blocks of the whole image: at most `most` of them.
    pub fn next_rest(
        &mut self,
        all: &Range<u64>,
        most: u64,
        wanted: impl Fn(u64) -> bool,
    ) -> Option<Range<u64>> {
        self.rest.as_mut()?.next(all, most, &wanted)
    }

    /// Forgets the spots, so that nothing near them is fetched.
    pub fn clear(&mut self) {
        self.near.clear();
    }
}

impl Spot {
    fn is_near(&self, other: &Spot) -> bool {
        let reach = 4 * other.radius;
        self.read.start <= other.read.end + reach && other.read.start <= self.read.end + reach
    }

    /// The nearest wanted blocks that have not been considered yet.
    fn next(
        &mut self,
        around: &Range<u64>,
        most: u64,
        wanted: &impl Fn(u64) -> bool,
    ) -> Option<Range<u64>> {
        loop {
            let Range { start, end } = self.seen;
            let (is_below, is_above) = (start > around.start, end < around.end);
            let is_nearer_above = end - self.read.end <= self.read.start - start;
            if is_above && (is_nearer_above || !is_below) {
                let blocks = (end..around.end.min(end + most)).take_while(|&block| wanted(block));
                self.seen.end = blocks.last().map_or(end, |last| last) + 1;
                if wanted(end) {
                    return Some(end..self.seen.end);
                }
            } else if is_below {
                let least = around.start.max(start.saturating_sub(most));
                let blocks = (least..start).rev().take_while(|&block| wanted(block));
                self.seen.start = blocks.last().unwrap_or(start - 1);
                if wanted(start - 1) {
                    return Some(self.seen.start..start);
                }
            } else {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(spots: &mut Spots, most: u64, wanted: impl Fn(u64) -> bool) -> Vec<Range<u64>> {
        std::iter::from_fn(|| spots.next_near(most, &wanted)).collect()
    }

    #[test]
    fn what_is_near_comes_from_near_to_far_on_both_sides() {
        let mut spots = Spots::default();
        spots.read(50..52, &(4..100));
        assert_eq!(
            all(&mut spots, 2, |_| true),
            [52..54, 48..50, 54..56, 46..48]
        );
        // A read at the beginning of an image, next to a block that is already present.
        spots.read(1..2, &(4..100));
        assert_eq!(all(&mut spots, 4, |block| block != 3), [2..3, 0..1, 4..6]);
    }

    #[test]
    fn the_last_place_comes_first_and_reads_near_each_other_widen_it() {
        let mut spots = Spots::default();
        spots.read(100..101, &(4..10));
        spots.read(500..501, &(4..10));
        assert_eq!(spots.next_near(4, |_| true), Some(501..505));
        spots.read(110..111, &(4..10));
        let wide = all(&mut spots, 100, |_| true);
        assert_eq!(
            wide,
            [111..119, 102..110, 496..500],
            "8 blocks instead of 4"
        );
        spots.read(115..116, &(4..10));
        assert_eq!(
            all(&mut spots, 100, |_| true),
            [116..126, 105..115],
            "not more than 10"
        );
    }

    #[test]
    fn of_a_file_all_is_near_as_far_as_it_comes_soon() {
        let mut spots = Spots::default();
        spots.relate(90..120);
        spots.read(100..101, &(2..4));
        assert_eq!(all(&mut spots, 100, |_| true), [101..111, 90..100]);
        spots.relate(1000..2000);
        spots.read(1500..1501, &(2..4));
        assert_eq!(all(&mut spots, 100, |_| true), [1501..1511, 1490..1500]);
        spots.read(1502..1503, &(2..4));
        assert_eq!(all(&mut spots, 100, |_| true), [1503..1523, 1482..1502]);
    }

    #[test]
    fn the_rest_is_around_the_first_place() {
        let mut spots = Spots::default();
        assert_eq!(
            spots.next_rest(&(0..9), 4, |_| true),
            None,
            "nothing was read"
        );
        spots.read(5..6, &(1..1));
        spots.read(0..1, &(1..1));
        let rest: Vec<_> =
            std::iter::from_fn(|| spots.next_rest(&(0..9), 2, |block| block > 1)).collect();
        assert_eq!(rest, [6..8, 3..5, 8..9, 2..3]);
    }
}
