//! The small files that the kernel learned of from listings, in order.
//!
//! Some programs, `cp -r` among them, sort a listing by inode number. If reads follow that order
//! rather than that of the listing, later listings are sorted in the same way.

use std::collections::VecDeque;

use erofs_engine::erofs_format::Nid;

/// Maximum number of files remembered, at 8 bytes each. The oldest listings are dropped first.
const MOST_FILES: u64 = 1 << 15;

/// Maximum number of listings remembered, even if each has only one file.
const MOST_LISTINGS: usize = 1 << 12;

/// A directory may be listed both by its reader and ahead of the reader at about the same time.
/// Therefore a listing that equals one of this many previous ones is not added again.
const AT_THE_SAME_TIME: usize = 4;

/// How many more reads must follow the other order than the current one before the order is
/// changed.
const ENOUGH_READS: usize = 4;

/// A position in the sequence.
pub(super) type Place = u64;

/// All listings, one after another.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    /// Ordered by place.
    listings: VecDeque<Listing>,
    end: Place,
    /// Whether new listings are sorted by inode number.
    by_number: bool,
    /// Number of reads against the current order, minus those that follow it.
    against: usize,
    /// The file that was read last.
    last: Option<Nid>,
}

/// The files listed by one request.
#[derive(Debug)]
struct Listing {
    start: Place,
    files: Box<[Nid]>,
    /// Whether the kernel has received the pages of each file, though it may have dropped them.
    cached: Box<[bool]>,
    lowest: Nid,
    highest: Nid,
}

impl Sequence {
    /// Appends files after all others.
    pub(super) fn append(&mut self, files: &[Nid]) {
        let (Some(&lowest), Some(&highest)) = (files.iter().min(), files.iter().max()) else {
            return;
        };
        let mut files: Box<[Nid]> = files.into();
        if self.by_number {
            files.sort_unstable();
        }
        let mut latest = self.listings.iter().rev().take(AT_THE_SAME_TIME);
        if latest.any(|listing| listing.files == files) {
            return;
        }
        let count = files.len() as u64;
        self.listings.push_back(Listing {
            start: self.end,
            cached: vec![false; files.len()].into(),
            files,
            lowest,
            highest,
        });
        self.end += count;
        let kept = self.end.saturating_sub(MOST_FILES);
        let too_many = |all: &VecDeque<Listing>| all.len() > MOST_LISTINGS;
        while too_many(&self.listings) || self.listings.front().is_some_and(|l| l.end() <= kept) {
            self.listings.pop_front();
        }
    }

    /// One past the last place.
    pub(super) fn end(&self) -> Place {
        self.end
    }

    /// The file at a place, unless its listing was dropped or is yet to come.
    pub(super) fn file(&self, place: Place) -> Option<Nid> {
        let (listing, file) = self.index(place)?;
        Some(self.listings[listing].files[file])
    }

    /// Whether the kernel has received the pages of the file at a place.
    pub(super) fn is_cached(&self, place: Place) -> bool {
        let index = self.index(place);
        index.is_some_and(|(listing, file)| self.listings[listing].cached[file])
    }

    /// Notes that the kernel receives the pages of the file at a place.
    pub(super) fn set_cached(&mut self, place: Place) {
        if let Some((listing, file)) = self.index(place) {
            self.listings[listing].cached[file] = true;
        }
    }

    /// Notes that the kernel requests the file at a place. If the kernel had received the file's
    /// pages before, it has dropped them since, and may have dropped pages of other files too.
    pub(super) fn read(&mut self, place: Place) {
        self.judge(place);
        if self.is_cached(place) {
            let all = self.listings.iter_mut();
            all.for_each(|listing| listing.cached.fill(false));
        }
        self.set_cached(place);
    }

    /// Tracks which order the reader follows.
    fn judge(&mut self, place: Place) {
        let found = self.index(place).map(|(listing, file)| {
            let listing = &self.listings[listing];
            (listing, listing.files[file])
        });
        let last = std::mem::replace(&mut self.last, found.map(|(_, file)| file));
        let (Some((listing, file)), Some(last)) = (found, last) else {
            return;
        };
        let Some(before) = listing.place(last) else {
            return;
        };
        // Files stored ahead are not requested, so a reader in this order skips some.
        self.against = if self.by_number {
            match place < before {
                true => self.against + 2,
                false => self.against.saturating_sub(1),
            }
        } else {
            let higher = listing.files.iter().filter(|&&other| other > last);
            match (before + 1 == place, higher.min() == Some(&file)) {
                (false, true) => self.against + 1,
                (true, false) => self.against.saturating_sub(1),
                _ => self.against,
            }
        };
        if self.against >= ENOUGH_READS {
            self.against = 0;
            self.by_number = !self.by_number;
        }
    }

    /// The index of the listing that has a place, and of the file in this listing.
    fn index(&self, place: Place) -> Option<(usize, usize)> {
        let after = self.listings.partition_point(|l| l.start <= place);
        let listing = after.checked_sub(1)?;
        let file = (place - self.listings[listing].start) as usize;
        (file < self.listings[listing].files.len()).then_some((listing, file))
    }

    /// The place of a file; the newest one if it was listed several times.
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
    fn listings_are_sorted_while_readers_sort_them() {
        let mut sequence = Sequence::default();
        let read = |sequence: &mut Sequence, files: &[Nid]| {
            for file in files {
                let place = sequence.place(*file).unwrap();
                sequence.read(place);
            }
        };
        sequence.append(&[10, 40, 20, 50, 30, 60]);
        read(&mut sequence, &[10, 20, 30, 40, 50]);
        sequence.append(&[80, 70]);
        assert_eq!(sequence.file(6), Some(70));
        // The first reader finds some files stored; the second follows the listing.
        read(&mut sequence, &[70, 80]);
        sequence.append(&[3, 1, 2, 7, 6, 9]);
        read(&mut sequence, &[1, 6, 9]);
        sequence.append(&[95, 90, 99, 92, 97, 91]);
        read(&mut sequence, &[95, 90, 99, 92, 97, 91]);
        sequence.append(&[101, 100]);
        assert_eq!(sequence.file(20), Some(101));
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
