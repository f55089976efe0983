//! Merges names from directories of several images into one order.
//!
//! In each image, the entries of a directory are sorted by name, so directories are merged while
//! they are read. A position in a listing is the place of its last entry in one image's directory.
//! The name at that place determines where to continue in the other images' directories, so nothing
//! has to be remembered between two parts of a listing.

use std::collections::VecDeque;

use erofs_format::Nid;

/// Number of bits of a position that hold the place in an image's directory.
const PLACE_BITS: u32 = 48;

/// An entry of one image's directory.
#[derive(Debug)]
pub(crate) struct PartEntry {
    pub name: Vec<u8>,
    /// The entry's inode number in its image.
    pub nid: Nid,
    pub file_type: u8,
    /// The entry's place in the directory.
    pub place: u64,
}

/// The place of an entry: which of the merged directories it is in, and the position there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub part: usize,
    pub place: u64,
}

impl Place {
    /// The position after the entry; `None` if no directory is that large.
    pub(crate) fn position(self) -> Option<u64> {
        let part = (self.part as u64) << PLACE_BITS;
        (self.place >> PLACE_BITS == 0).then_some((part | self.place) + 1)
    }

    /// The place of the last entry before a position; `None` at the beginning.
    pub(crate) fn before(position: u64) -> Option<Self> {
        let place = position.checked_sub(1)?;
        Some(Self {
            part: (place >> PLACE_BITS) as usize,
            place: place & ((1 << PLACE_BITS) - 1),
        })
    }
}

/// Entries of one image's directory that have been read but not yet merged.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// The position at which reading continues.
    pub position: u64,
    pub entries: VecDeque<PartEntry>,
    pub has_ended: bool,
}

/// Entries with the same name, the top one first, each with the number of its directory.
pub(crate) type SameName = Vec<(usize, PartEntry)>;

/// Takes the entries that share the next name; returns none at the end. Each cursor must have
/// entries or be at its end.
pub(crate) fn next(cursors: &mut [Cursor]) -> SameName {
    let fronts = cursors.iter().filter_map(|cursor| cursor.entries.front());
    let Some(name) = fronts.map(|entry| entry.name.clone()).min() else {
        return Vec::new();
    };
    let mut same = Vec::new();
    for (part, cursor) in cursors.iter_mut().enumerate() {
        let front = cursor.entries.front();
        if front.is_some_and(|front| front.name == name)
            && let Some(entry) = cursor.entries.pop_front()
        {
            same.push((part, entry));
        }
    }
    same
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(names: &[&str]) -> Cursor {
        let entry = |(place, name): (usize, &&str)| PartEntry {
            name: name.as_bytes().to_vec(),
            nid: 0,
            file_type: 0,
            place: place as u64,
        };
        Cursor {
            entries: names.iter().enumerate().map(entry).collect(),
            ..Cursor::default()
        }
    }

    #[test]
    fn names_come_in_order_with_all_that_have_them() {
        let mut cursors = [cursor(&["a", "c"]), cursor(&[]), cursor(&["b", "c"])];
        let mut found = Vec::new();
        loop {
            let same = next(&mut cursors);
            let Some((_, first)) = same.first() else {
                break;
            };
            let name = String::from_utf8_lossy(&first.name).into_owned();
            found.push((name, same.iter().map(|(part, _)| *part).collect::<Vec<_>>()));
        }
        let expected = [("a", vec![0]), ("b", vec![2]), ("c", vec![0, 2])];
        assert_eq!(
            found,
            expected.map(|(name, parts)| (name.to_owned(), parts))
        );
    }

    #[test]
    fn a_position_leads_back_to_its_entry() {
        for (part, place) in [(0, 0), (0, 12), (127, (1 << PLACE_BITS) - 1)] {
            let entry = Place { part, place };
            let position = entry.position().unwrap();
            assert!(
                position > 0 && position < 1 << 61,
                "the mount has higher ones"
            );
            assert_eq!(Place::before(position), Some(entry));
        }
        let place = 1 << PLACE_BITS;
        assert_eq!(Place { part: 0, place }.position(), None);
        assert_eq!(Place::before(0), None);
    }
}
