//! Reads ahead for readers that continue where they stopped.
//!
//! A reader requests only what is missing, so a question that begins where the last window ended
//! shows that the reader has caught up, and the window is doubled. Its length thus adapts to
//! round-trip time and bandwidth, although neither is measured. A reader reports when it reaches a
//! window that is already present, so that the following window is fetched in the meantime.

use std::collections::VecDeque;
use std::ops::Range;

use remote_image::message::STREAMS;
use remote_image::store::BLOCK;

/// The longest window, in blocks: as much as may be in flight, 16 MiB.
const LONGEST: u64 = (16 << 20) / BLOCK;

/// Where readers are expected next, in blocks; the most recently seen is last.
#[derive(Debug, Default)]
pub struct Streams(VecDeque<Stream>);

#[derive(Debug)]
struct Stream {
    /// The end of the requested blocks, and the end of the windows after them.
    ends: [u64; 2],
    window: u64,
}

impl Streams {
    /// The blocks to read ahead after a question for `asked`; `None` if it continues no stream.
    pub fn follow(&mut self, asked: &Range<u64>) -> Option<Range<u64>> {
        let found = self.find(asked.start);
        let (window, end) = match &found {
            Some(stream) => {
                let window = (2 * stream.window).clamp(asked.end - asked.start, LONGEST);
                (window, stream.ends[1])
            }
            None => (0, 0),
        };
        let ahead = asked.end..asked.end + window;
        self.keep([asked.end, ahead.end.max(end)], window);
        found.map(|_| ahead)
    }

    /// The next window for the reader that reached this block: as long as the last one, since the
    /// link keeps up, or twice as long if that costs nothing.
    pub fn pass(&mut self, block: u64, doubles: bool) -> Option<Range<u64>> {
        let Stream { ends, window } = self.find(block)?;
        let window = (window << u32::from(doubles)).min(LONGEST);
        let ahead = ends[1]..ends[1] + window;
        self.keep([block, ahead.end], window);
        Some(ahead)
    }

    fn find(&mut self, block: u64) -> Option<Stream> {
        let fits = |stream: &Stream| (stream.ends[0]..=stream.ends[1]).contains(&block);
        let at = self.0.iter().position(fits)?;
        self.0.remove(at)
    }

    fn keep(&mut self, ends: [u64; 2], window: u64) {
        self.0.push_back(Stream { ends, window });
        if self.0.len() > STREAMS {
            self.0.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_doubles_when_a_reader_catches_up_and_others_are_not_followed() {
        let mut streams = Streams::default();
        assert_eq!(streams.follow(&(0..2)), None);
        assert_eq!(streams.follow(&(50..51)), None);
        assert_eq!(streams.follow(&(2..4)), Some(4..6));
        assert_eq!(streams.follow(&(6..8)), Some(8..12));
        assert_eq!(streams.follow(&(12..14)), Some(14..22));
        assert_eq!(streams.follow(&(51..52)), Some(52..53));
        assert_eq!(streams.follow(&(900..902)), None);
        let mut at = 22;
        for _ in 0..20 {
            at = streams.follow(&(at..at + 2)).expect("a stream").end;
        }
        assert_eq!(
            streams.follow(&(at..at + 2)),
            Some(at + 2..at + 2 + LONGEST)
        );
    }

    #[test]
    fn a_reader_that_comes_to_its_window_has_the_next_one_fetched() {
        let mut streams = Streams::default();
        streams.follow(&(0..2));
        assert_eq!(streams.follow(&(2..4)), Some(4..6));
        assert_eq!(streams.pass(4, false), Some(6..8));
        assert_eq!(streams.pass(6, true), Some(8..12));
        assert_eq!(streams.follow(&(7..8)), Some(8..16), "the link is too slow");
        assert_eq!(streams.pass(8, false), Some(16..24));
        assert_eq!(streams.pass(90, true), None);
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut streams = Streams::default();
        for number in 0..=STREAMS as u64 {
            streams.follow(&(number * 100..number * 100 + 1));
        }
        assert_eq!(streams.follow(&(1..2)), None);
        assert_eq!(streams.follow(&(1601..1602)), Some(1602..1603));
    }
}
