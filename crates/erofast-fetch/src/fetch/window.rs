//! Predicts what a reader will want next.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use remote_image::Ahead;
use remote_image::message::{Class, Question, Reply};
use remote_image::store::{BLOCK, blocks};

use super::Fetch;
use crate::client::Client;
use crate::waiting::{Asked, in_words};

impl Fetch {
    /// The range that the reader of these blocks will probably want next, and the mark in it.
    pub(super) fn ahead(&self, missing: &BTreeSet<u64>) -> (Range<u64>, Option<u64>) {
        let (Some(&first), Some(&last)) = (missing.first(), missing.last()) else {
            return (0..0, None);
        };
        // Blocks that are far apart are wanted by different readers.
        let together = last - first < 2 * missing.len() as u64;
        let mut streams = self.streams.borrow_mut();
        match streams.follow(&(first..last + 1)).filter(|_| together) {
            Some(ahead) => self.marked(ahead),
            None => (0..0, None),
        }
    }

    /// Handles the report that a reader has reached a mark: fetches the window after the one that
    /// it is reading now.
    pub(super) fn passed(&self, client: &Client, question: &Question) {
        let mut mark = None;
        let doubles = self.shared.link.is_quick() && self.waiting.borrow().runs() == 0;
        if let Some(range) = question.ranges.first()
            && !self.has(Class::Profile)
            && let Some(ahead) = self.streams.borrow_mut().pass(range.start / BLOCK, doubles)
        {
            let marked = self.marked(ahead);
            mark = marked.1;
            self.read_ahead(marked.0);
            self.asked.notify_one();
        }
        client.reply(Reply::new(question.id, 0, in_words(mark)));
    }

    /// Notes that the bytes of a range belong together.
    pub(super) fn relate(&self, question: &Question) {
        if let Some(range) = question.ranges.first() {
            self.spots.borrow_mut().relate(self.within(blocks(range)));
        }
    }

    /// Treats the first block as read, since an image that was opened will be read.
    pub fn begin_ahead(self: &Rc<Self>) {
        self.look_around(&BTreeSet::from([0]));
    }

    /// Notes where readers are, since the blocks that they will want next may be near.
    pub(super) fn look_around(self: &Rc<Self>, missing: &BTreeSet<u64>) {
        if self.options.ahead == Ahead::Nothing {
            return;
        }
        self.shared.last_read.note(self);
        let (near, mut spots) = (self.shared.link.near(), self.spots.borrow_mut());
        let mut blocks: Vec<_> = missing.iter().copied().collect();
        // The blocks around the range that was noted last are fetched first, so start from the end.
        while let Some(last) = blocks.pop() {
            let mut first = last;
            while blocks.last().is_some_and(|&block| block + 1 == first) {
                first -= 1;
                blocks.pop();
            }
            spots.read(first..last + 1, &near);
        }
    }

    /// The next blocks near those that were read; they are in flight from now on.
    pub fn next_near(&self, most: u64) -> Option<Range<u64>> {
        self.fly(|wanted| self.spots.borrow_mut().next_near(most, wanted))
    }

    /// The next blocks of the rest of the image, if all of it can arrive soon; they are in flight
    /// from now on.
    pub fn next_rest(&self, most: u64) -> Option<Range<u64>> {
        let is_soon = || !self.room.is_full() && self.shared.link.brings_soon(self.room.missing());
        (self.options.ahead == Ahead::Whole && is_soon()).then(|| {
            self.fly(|wanted| self.spots.borrow_mut().next_rest(&self.all(), most, wanted))
        })?
    }

    fn fly(
        &self,
        next: impl FnOnce(&dyn Fn(u64) -> bool) -> Option<Range<u64>>,
    ) -> Option<Range<u64>> {
        let end = self.all().end;
        let run = {
            let waiting = self.waiting.borrow();
            if !waiting.has_room_ahead() {
                return None;
            }
            next(&|block| block < end && !waiting.is_in_flight(block) && !self.room.lists(block))?
        };
        self.waiting.borrow_mut().fly(&run);
        Some(run)
    }

    /// Adds a mark, which makes the reader report when it reaches the beginning of this window.
    fn marked(&self, ahead: Range<u64>) -> (Range<u64>, Option<u64>) {
        let ahead = self.within(ahead);
        let mark = (!ahead.is_empty()).then_some(ahead.start);
        (ahead, mark)
    }

    /// Fetches these blocks, unless they are present or already requested.
    pub(super) fn read_ahead(&self, blocks: Range<u64>) {
        let mut waiting = self.waiting.borrow_mut();
        let wanted = |block: &u64| !waiting.is_asked(*block) && !self.room.lists(*block);
        let missing: BTreeSet<_> = self.within(blocks).filter(wanted).collect();
        if let (Some(&first), Some(&last)) = (missing.first(), missing.last()) {
            let order = std::iter::once(first..last + 1).collect();
            waiting.push(Asked::new((None, 0), Class::ReadAhead, missing, order));
        }
    }
}
