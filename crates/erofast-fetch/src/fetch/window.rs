//! Predicts what a reader will want next.

use std::collections::BTreeSet;
use std::ops::Range;

use remote_image::message::{Class, Question, Reply};
use remote_image::store::BLOCK;

use super::Fetch;
use crate::client::Client;
use crate::waiting::{Asked, in_words};

impl Fetch {
    /// The range that the reader of these blocks will probably want next, and the mark in it.
    pub(super) fn ahead(&self, missing: &BTreeSet<u64>) -> (Range<u64>, Option<u64>) {
        let (Some(&first), Some(&last)) = (missing.first(), missing.last()) else {
            return (0..0, None);
        };
        // Blocks that are far apart belong to several readers.
        let together = last - first < 2 * missing.len() as u64;
        let mut streams = self.streams.borrow_mut();
        match streams.follow(&(first..last + 1)).filter(|_| together) {
            Some(ahead) => self.marked(ahead),
            None => (last + 1..last + self.pace.blocks(), None),
        }
    }

    /// A reader reached a mark: fetches the window after the one that it is reading now.
    pub(super) fn passed(&self, client: &Client, question: &Question) {
        let mut mark = None;
        let doubles = self.pace.is_quick() && self.waiting.borrow().runs() == 0;
        if let Some(range) = question.ranges.first()
            && !self.waiting.borrow().has_profile()
            && let Some(ahead) = self.streams.borrow_mut().pass(range.start / BLOCK, doubles)
        {
            let marked = self.marked(ahead);
            mark = marked.1;
            self.read_ahead(marked.0);
            self.asked.notify_one();
        }
        client.reply(Reply::new(question.id, 0, in_words(mark)));
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
