//! Predicts which directories a tree walk will list next.
//!
//! Programs that list a whole tree go depth first, in the order of the listings or in reverse. The
//! directories that listings have named are kept in that order. The first few of them are left to
//! the walk itself, whose requests then show how far it has got.

use std::collections::VecDeque;
use std::ops::Range;

use erofs_engine::erofs_format::Nid;
use look_ahead::joined;

/// Number of directories that the walk must list in order before any is listed ahead.
const STEPS: u32 = 3;

/// Number of upcoming directories left to the walk itself; those after them are listed ahead.
const LEFT: usize = 16;

/// Number of directories in one batch.
const BATCH: usize = 16;

/// Maximum number of directories listed ahead before the walk must list one itself.
const AHEAD: usize = 128;

/// Maximum number of directories remembered; those that come last in the walk are forgotten.
const MOST: usize = 4096;

/// Maximum number of bytes in a path that is remembered.
const LONGEST_PATH: usize = 512;

/// Number of consecutive listings outside the walk after which it is given up.
const STRANGERS: u32 = 16;

/// Maximum number of remembered directories whose listing may be incomplete.
const OPEN: usize = 4;

/// A directory that a listing named.
#[derive(Debug)]
struct Directory {
    nid: Nid,
    /// Path from the root of the mount.
    path: Vec<u8>,
    /// Whether the directory is being listed ahead.
    ahead: bool,
}

/// A directory whose first entries were listed.
#[derive(Debug)]
struct Open {
    nid: Nid,
    path: Vec<u8>,
    /// The pending directory that follows its last child; `None` if there is none.
    next: Option<Nid>,
}

/// The walk that is being followed.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// In reverse order: the last to be listed comes first.
    pending: Vec<Directory>,
    /// Number of listings that followed the walk's order.
    steps: u32,
    /// Number of consecutive listings outside the walk.
    strangers: u32,
    /// Number of directories listed ahead since the walk's own last listing.
    ahead: usize,
    /// Number of children in the walk's own last listing, which come next.
    latest: usize,
    /// Whether the walk visits directories in the reverse order of the listings.
    backwards: bool,
    open: VecDeque<Open>,
}

impl Walk {
    /// Notes that a directory was listed: by the walk, by another reader, or ahead of the walk.
    /// `path` is set for a directory at which a walk may begin; `children` are the names and
    /// numbers of its subdirectories.
    pub(super) fn listed(&mut self, nid: Nid, path: Option<&[u8]>, children: &[(Vec<u8>, Nid)]) {
        let place = self.pending.iter().rposition(|known| known.nid == nid);
        match place.map(|place| self.turned(place)) {
            Some(place) => self.step(nid, place, children),
            None => self.stranger(nid, path, children),
        }
    }

    /// Notes that more entries of a directory were listed.
    pub(super) fn continued(&mut self, nid: Nid, children: &[(Vec<u8>, Nid)]) {
        let Some(open) = self.open.iter().find(|open| open.nid == nid) else {
            return;
        };
        let place = match open.next {
            _ if self.backwards => Some(self.pending.len()),
            Some(next) => self.pending.iter().rposition(|known| known.nid == next),
            None => Some(0),
        };
        if let Some(place) = place {
            let place = place + usize::from(open.next.is_some() && !self.backwards);
            let known = below(&open.path, children, self.backwards);
            self.latest += known.len();
            self.insert(place..place, known);
        }
    }

    /// Returns the index of a directory in `pending`, after reversing the walk if the directory is
    /// the last child and is listed first.
    fn turned(&mut self, place: usize) -> usize {
        let is_last = self.latest > 1 && place + self.latest == self.pending.len();
        if !is_last || self.pending[place].ahead {
            return place;
        }
        self.pending.drain(..place);
        self.pending.reverse();
        self.open.clear();
        self.backwards = !self.backwards;
        self.steps = 0;
        self.pending.len() - 1
    }

    fn step(&mut self, nid: Nid, place: usize, children: &[(Vec<u8>, Nid)]) {
        let own = !self.pending[place].ahead;
        if own {
            // The walk has skipped the directories before this one.
            self.pending.truncate(place + 1);
            self.steps += 1;
            self.ahead = 0;
        } else {
            self.ahead += 1;
        }
        self.strangers = 0;
        let next = place.checked_sub(1).map(|next| self.pending[next].nid);
        let path = std::mem::take(&mut self.pending[place].path);
        let known = below(&path, children, self.backwards);
        self.latest = if own { known.len() } else { 0 };
        self.insert(place..place + 1, known);
        self.remember(nid, path, next);
    }

    fn insert(&mut self, places: Range<usize>, known: Vec<Directory>) {
        self.pending.splice(places, known);
        let too_many = self.pending.len().saturating_sub(MOST);
        self.pending.drain(..too_many);
    }

    fn remember(&mut self, nid: Nid, path: Vec<u8>, next: Option<Nid>) {
        self.open.truncate(OPEN - 1);
        self.open.push_front(Open { nid, path, next });
    }

    fn stranger(&mut self, nid: Nid, path: Option<&[u8]>, children: &[(Vec<u8>, Nid)]) {
        self.strangers += 1;
        if self.steps >= STEPS && self.strangers < STRANGERS {
            return;
        }
        *self = Self {
            backwards: self.backwards,
            ..Self::default()
        };
        if let Some(path) = path {
            self.pending = below(path, children, self.backwards);
            self.latest = self.pending.len();
            self.remember(nid, path.to_vec(), None);
        }
    }

    /// The paths of directories to list ahead now; none if the walk is uncertain, or if enough
    /// directories are already listed ahead of it.
    pub(super) fn next_batch(&mut self) -> Vec<Vec<u8>> {
        if self.steps < STEPS || self.ahead >= AHEAD {
            return Vec::new();
        }
        let left = LEFT.min(self.pending.len().div_ceil(2));
        let mut others = self.pending.iter_mut().rev().skip(left);
        let first = others.find(|directory| !directory.ahead);
        let behind = others.take_while(|directory| !directory.ahead);
        let batch = first.into_iter().chain(behind).take(BATCH);
        batch
            .map(|directory| {
                directory.ahead = true;
                directory.path.clone()
            })
            .collect()
    }
}

/// The children of a directory, in the reverse order of the walk.
fn below(path: &[u8], children: &[(Vec<u8>, Nid)], backwards: bool) -> Vec<Directory> {
    let child = |(name, nid): &(Vec<u8>, Nid)| Directory {
        nid: *nid,
        path: joined(path, name),
        ahead: false,
    };
    let known = children.iter().map(child);
    let mut known: Vec<_> = known
        .filter(|directory| directory.path.len() <= LONGEST_PATH)
        .collect();
    if !backwards {
        known.reverse();
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    fn children(first: Nid, count: u64) -> Vec<(Vec<u8>, Nid)> {
        let child = |nid: Nid| (format!("d{nid}").into_bytes(), nid);
        (first..first + count).map(child).collect()
    }

    /// A walk of sixty directories below the root, three of which it has listed.
    fn walk() -> Walk {
        let mut walk = Walk::default();
        walk.listed(1, Some(b""), &children(100, 60));
        (100..103).for_each(|nid| walk.listed(nid, None, &[]));
        walk
    }

    fn numbers(batch: &[Vec<u8>]) -> Vec<String> {
        let text = |path: &Vec<u8>| String::from_utf8(path.clone()).unwrap();
        batch.iter().map(text).collect()
    }

    #[test]
    fn nothing_is_listed_ahead_before_the_walk_is_sure() {
        let mut walk = Walk::default();
        walk.listed(1, Some(b""), &children(100, 60));
        (100..102).for_each(|nid| walk.listed(nid, None, &[]));
        assert!(walk.next_batch().is_empty());
        walk.listed(102, None, &[]);
        assert!(!walk.next_batch().is_empty());
    }

    #[test]
    fn a_batch_begins_behind_those_that_are_left_to_the_walk() {
        let mut walk = walk();
        let first = numbers(&walk.next_batch());
        assert_eq!((&*first[0], first.len()), ("d119", BATCH));
        assert_eq!(numbers(&walk.next_batch())[0], "d135");
    }

    #[test]
    fn children_of_a_directory_that_was_listed_ahead_come_next() {
        let mut walk = walk();
        walk.next_batch();
        walk.listed(119, None, &children(500, 2));
        let next = numbers(&walk.next_batch());
        assert_eq!(next, ["d119/d500", "d119/d501"]);
    }

    #[test]
    fn entries_of_a_long_directory_follow_those_before() {
        let mut walk = Walk::default();
        walk.listed(1, Some(b""), &children(100, 2));
        walk.continued(1, &children(102, 2));
        walk.listed(101, None, &children(500, 1));
        walk.continued(101, &children(501, 1));
        let order: Vec<_> = walk.pending.iter().rev().map(|d| d.nid).collect();
        assert_eq!(order, [500, 501, 102, 103]);
    }

    #[test]
    fn a_walk_may_go_against_the_order() {
        let mut walk = Walk::default();
        walk.listed(1, Some(b""), &children(100, 40));
        walk.listed(139, None, &children(500, 2));
        walk.listed(501, None, &[]);
        walk.listed(500, None, &[]);
        let batch = numbers(&walk.next_batch());
        assert_eq!((&*batch[0], &*batch[1]), ("d122", "d121"));
    }

    #[test]
    fn the_walk_passes_over_what_it_does_not_want() {
        let mut walk = walk();
        walk.listed(110, None, &children(600, 1));
        let paths: Vec<_> = walk.pending.iter().rev().map(|d| d.nid).collect();
        assert_eq!(paths[..2], [600, 111]);
    }

    #[test]
    fn half_of_a_few_are_left_to_the_walk() {
        let mut walk = Walk::default();
        walk.listed(1, Some(b""), &children(100, 8));
        (100..103).for_each(|nid| walk.listed(nid, None, &[]));
        assert_eq!(numbers(&walk.next_batch()), ["d106", "d107"]);
    }

    #[test]
    fn so_many_are_listed_ahead_of_a_walk_that_stands_still() {
        let mut walk = Walk::default();
        walk.listed(1, Some(b""), &children(100, 1000));
        (100..103).for_each(|nid| walk.listed(nid, None, &[]));
        let mut ahead = 0;
        loop {
            let batch = walk.next_batch();
            if batch.is_empty() {
                break;
            }
            for path in &batch {
                let nid = String::from_utf8_lossy(&path[1..]).parse().unwrap();
                walk.listed(nid, None, &[]);
            }
            ahead += batch.len();
        }
        assert_eq!(ahead, AHEAD);
        walk.listed(103, None, &[]);
        assert!(!walk.next_batch().is_empty());
    }

    #[test]
    fn another_reader_does_not_end_a_walk_but_many_listings_do() {
        let mut walk = walk();
        walk.listed(7, None, &children(900, 3));
        assert!(!walk.next_batch().is_empty());
        (0..STRANGERS).for_each(|_| walk.listed(7, None, &[]));
        assert!(walk.pending.is_empty());
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let mut walk = Walk::default();
        walk.listed(1, Some(b""), &children(10, 3));
        walk.listed(10, None, &children(1000, 2 * MOST as u64));
        assert_eq!(walk.pending.len(), MOST);
        assert_eq!(walk.pending.last().unwrap().nid, 1000);
        let long = vec![b'x'; LONGEST_PATH];
        walk.listed(1000, None, &[(long, 5)]);
        assert_eq!(walk.pending.last().unwrap().nid, 1001);
    }
}
