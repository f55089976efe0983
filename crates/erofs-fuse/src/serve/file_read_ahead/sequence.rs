//! The small files that the kernel got to know by listings, in their order.

use std::collections::VecDeque;

use erofs_engine::erofs_format::Nid;

/// Files that are remembered: 8 bytes each. The oldest listings go first.
const MOST_FILES: u64 = 1 << 15;

/// Listings that are remembered, of one file for example.
const MOST_LISTINGS: usize = 1 << 12;

/// A directory may be listed ahead and by the reader at the same time: the second one of so many
/// listings in a row adds nothing.
const AT_THE_SAME_TIME: usize = 4;

/// A number in the sequence.
pub(super) type Place = u64;

/// All listings, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// By place.
    listings: VecDeque<Listing>,
    end: Place,
}

/// What one request listed.
#[derive(Debug)]
struct Listing {
    start: Place,
    files: Box<[Nid]>,
    /// The kernel got their pages, and may have dropped them.
    cached: Box<[bool]>,
    lowest: Nid,
    highest: Nid,
}

impl Sequence {
    /// Adds files behind all others.
    pub(super) fn append(&mut self, files: &[Nid]) {
        let (Some(&lowest), Some(&highest)) = (files.iter().min(), files.iter().max()) else {
            return;
        };
        let mut latest = self.listings.iter().rev().take(AT_THE_SAME_TIME);
        if latest.any(|listing| *listing.files == *files) {
            return;
        }
        self.listings.push_back(Listing {
            start: self.end,
            files: files.into(),
            cached: vec![false; files.len()].into(),
            lowest,
            highest,
        });
        self.end += files.len() as u64;
        let kept = self.end.saturating_sub(MOST_FILES);
        let too_many = |all: &VecDeque<Listing>| all.len() > MOST_LISTINGS;
        while too_many(&self.listings) || self.listings.front().is_some_and(|l| l.end() <= kept) {
            self.listings.pop_front();
        }
    }

    /// One behind the last place.
    pub(super) fn end(&self) -> Place {
        self.end
    }

    /// The file at a place, unless it is forgotten or not listed yet.
    pub(super) fn file(&self, place: Place) -> Option<Nid> {
        let listing = self.listings.get(self.listing(place)?)?;
        listing.files.get((place - listing.start) as usize).copied()
    }

    /// Whether the kernel got the pages of the file at a place.
    pub(super) fn is_cached(&self, place: Place) -> bool {
        let listing = self.listing(place).and_then(|at| self.listings.get(at));
        listing.is_some_and(|l| l.cached.get((place - l.start) as usize) == Some(&true))
    }

    /// The kernel gets the pages of the file at a place.
    pub(super) fn set_cached(&mut self, place: Place) {
        let Some(listing) = self.listing(place).and_then(|at| self.listings.get_mut(at)) else {
            return;
        };
        if let Some(cached) = listing.cached.get_mut((place - listing.start) as usize) {
            *cached = true;
        }
    }

    /// The kernel asks for the file at a place. If it had its pages it has dropped them, and those
    /// of others too.
    pub(super) fn read(&mut self, place: Place) {
        if self.is_cached(place) {
            let all = self.listings.iter_mut();
            all.for_each(|listing| listing.cached.fill(false));
        }
        self.set_cached(place);
    }

    fn listing(&self, place: Place) -> Option<usize> {
        let after = self.listings.partition_point(|l| l.start <= place);
        after.checked_sub(1)
    }

    /// The place of a file, the newest one where it was listed several times.
    pub(super) fn place(&self, file: Nid) -> Option<Place> {
        let mut near = self.listings.iter().rev();
        near.find_map(|listing| listing.place(file))
    }
}

impl Listing {
    fn end(&self) -> Place {
        self.start + self.files.len() as u64
    }

    fn place(&self, file: Nid) -> Option<Place> {
        if !(self.lowest..=self.highest).contains(&file) {
            return None;
        }
        let index = self.files.iter().position(|&f| f == file)?;
        Some(self.start + index as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_places_in_the_order_of_their_listings() {
        let mut sequence = Sequence::default();
        sequence.append(&[30, 10, 20]);
        sequence.append(&[]);
        sequence.append(&[5, 40]);
        assert_eq!(sequence.end(), 5);
        for (place, file) in [30, 10, 20, 5, 40].into_iter().enumerate() {
            assert_eq!(sequence.file(place as u64), Some(file));
            assert_eq!(sequence.place(file), Some(place as u64));
        }
        assert_eq!((sequence.file(5), sequence.place(15)), (None, None));
    }

    #[test]
    fn a_file_that_is_listed_again_has_its_newest_place() {
        let mut sequence = Sequence::default();
        sequence.append(&[1, 2]);
        sequence.append(&[2, 3]);
        assert_eq!(sequence.place(2), Some(2));
        assert_eq!(sequence.file(1), Some(2));
    }

    #[test]
    fn a_directory_that_is_listed_twice_at_the_same_time_is_known_once() {
        let mut sequence = Sequence::default();
        sequence.append(&[1, 2]);
        sequence.append(&[3]);
        sequence.append(&[1, 2]);
        assert_eq!((sequence.end(), sequence.place(1)), (3, Some(0)));
    }

    #[test]
    fn pages_that_are_asked_for_again_were_dropped() {
        let mut sequence = Sequence::default();
        sequence.append(&[1, 2]);
        sequence.append(&[3]);
        sequence.set_cached(0);
        sequence.set_cached(2);
        assert_eq!(
            [0, 1, 2, 3].map(|p| sequence.is_cached(p)),
            [true, false, true, false]
        );
        sequence.read(2);
        assert_eq!(
            [0, 1, 2].map(|p| sequence.is_cached(p)),
            [false, false, true]
        );
    }

    #[test]
    fn the_oldest_listings_are_forgotten() {
        let mut sequence = Sequence::default();
        sequence.append(&[1, 2]);
        let many: Vec<Nid> = (10..10 + MOST_FILES).collect();
        sequence.append(&many);
        assert_eq!((sequence.file(0), sequence.place(1)), (None, None));
        assert_eq!(sequence.place(10), Some(2));
        assert_eq!(sequence.file(2), Some(10));
        (0..MOST_LISTINGS as u64).for_each(|file| sequence.append(&[1 << 40 | file]));
        assert_eq!(sequence.place(10), None);
        assert!(sequence.place(1 << 40).is_some());
    }
}
