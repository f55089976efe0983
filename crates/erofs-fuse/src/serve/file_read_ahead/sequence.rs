//! The small files that the kernel got to know by listings, in their order.

use std::collections::VecDeque;

use erofs_engine::erofs_format::Nid;

/// Files that are remembered: 8 bytes each. The oldest listings go first.
const MOST_FILES: u64 = 1 << 15;

/// Listings that are remembered, of one file for example.
const MOST_LISTINGS: usize = 1 << 12;

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
    lowest: Nid,
    highest: Nid,
}

impl Sequence {
    /// Adds files behind all others.
    pub(super) fn append(&mut self, files: &[Nid]) {
        let (Some(&lowest), Some(&highest)) = (files.iter().min(), files.iter().max()) else {
            return;
        };
        self.listings.push_back(Listing {
            start: self.end,
            files: files.into(),
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
        let after = self.listings.partition_point(|l| l.start <= place);
        let listing = self.listings.get(after.checked_sub(1)?)?;
        listing.files.get((place - listing.start) as usize).copied()
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
