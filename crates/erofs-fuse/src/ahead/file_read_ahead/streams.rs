//! Recognises files that are read one after another, and selects which to store next.
//!
//! The use of a stored page causes no request, so nothing shows how far a program has got.
//! Therefore each window after the first one leaves out its first file as a marker: a request for
//! the marker shows that the previous window was used, and that the next one is due. Markers
//! measure waste as well.

use std::collections::VecDeque;
use std::ops::Range;

use super::sequence::Place;

/// Maximum number of streams: programs that read at the same time, or places in a tree that one
/// program alternates between.
const STREAMS: usize = 4;

/// Number of files that a program may skip and still count as reading in order.
const SKIPPED: u64 = 3;

/// Number of reads in order before anything is stored, if nothing was wasted lately.
const EARLIEST: u32 = 2;

/// Maximum number of reads in order that are required after consecutive windows were wasted.
const LATEST: u32 = 32;

/// Number of files in the first window and in the largest one.
const WINDOW: [u64; 2] = [8, 64];

/// The files of a window that are still to be stored; the marker among them is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Window {
    stream: u64,
    places: Range<Place>,
    marker: Place,
}

/// A file to store, for [`Streams::stored`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    stream: u64,
    pub(super) place: Place,
}

#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Ordered by last read; the latest is last.
    streams: Vec<Stream>,
    numbers: u64,
    windows: VecDeque<Window>,
    /// Number of reads in order that are required beyond [`EARLIEST`].
    caution: u32,
    /// Bytes that a marker confirmed as used.
    pub(super) used: u64,
    pub(super) wasted: u64,
}

#[derive(Debug)]
struct Stream {
    number: u64,
    last: Place,
    run: u32,
    ahead: Option<Ahead>,
}

/// The files stored ahead or due to be stored.
#[derive(Debug)]
struct Ahead {
    marker: Place,
    end: Place,
    window: u64,
    /// Bytes stored before the marker and after it.
    stored: [u64; 2],
    /// Whether a marker was requested.
    confirmed: bool,
}

impl Streams {
    /// Notes that a file was requested; returns false if the file was due to be stored but is not
    /// stored yet.
    pub(super) fn read(&mut self, place: Place) -> bool {
        let in_time = !self.overtaken(place);
        match self.streams.iter().position(|stream| stream.expects(place)) {
            Some(index) => {
                let stream = self.streams.remove(index);
                self.go_on(stream, place);
            }
            None => self.begin(place),
        }
        in_time
    }

    /// The next file to store; `None` if there is none before `end`, the end of the known files.
    pub(super) fn next(&mut self, end: Place) -> Option<Due> {
        for window in &mut self.windows {
            while window.places.start < end
                && let Some(place) = window.places.next()
            {
                if window.marker != place {
                    let stream = window.stream;
                    return Some(Due { stream, place });
                }
            }
        }
        self.windows.retain(|window| !window.places.is_empty());
        None
    }

    pub(super) fn stored(&mut self, due: Due, bytes: u64) {
        let stream = self.streams.iter_mut().find(|s| s.number == due.stream);
        match stream.and_then(|stream| stream.ahead.as_mut()) {
            Some(ahead) => ahead.stored[usize::from(due.place > ahead.marker)] += bytes,
            None => self.wasted += bytes,
        }
    }

    /// Whether any file before `end` is due to be stored.
    pub(super) fn is_due(&self, end: Place) -> bool {
        self.windows
            .iter()
            .any(|window| window.places.start < end && !window.places.is_empty())
    }

    /// Drops the files due up to `place`, which a reader has reached. Returns whether `place` was
    /// among them.
    fn overtaken(&mut self, place: Place) -> bool {
        let reached = |window: &&Window| window.places.contains(&place);
        let Some(window) = self.windows.iter().find(reached) else {
            return false;
        };
        let (stream, is_marker) = (window.stream, window.marker == place);
        for window in self.windows.iter_mut().filter(|w| w.stream == stream) {
            let Range { start, end } = window.places;
            window.places.start = start.max(end.min(place + 1));
        }
        self.windows.retain(|window| !window.places.is_empty());
        !is_marker
    }

    fn begin(&mut self, place: Place) {
        if self.streams.len() == STREAMS {
            let oldest = self.streams.remove(0);
            self.end(&oldest);
        }
        self.numbers += 1;
        self.streams.push(Stream {
            number: self.numbers,
            last: place,
            run: 1,
            ahead: None,
        });
    }

    /// Counts as wasted the bytes that no marker confirmed as used, although the last window may
    /// have been used.
    fn end(&mut self, stream: &Stream) {
        self.windows.retain(|window| window.stream != stream.number);
        if let Some(ahead) = &stream.ahead {
            self.wasted += ahead.stored.iter().sum::<u64>();
            if !ahead.confirmed {
                self.caution = (self.caution * 2 + 2).min(LATEST - EARLIEST);
            }
        }
    }

    fn go_on(&mut self, mut stream: Stream, place: Place) {
        stream.last = stream.last.max(place);
        let due = match &mut stream.ahead {
            Some(ahead) if place >= ahead.marker => {
                self.used += ahead.stored[0];
                self.caution /= 2;
                Some((ahead.next_window(place), ahead.marker))
            }
            Some(_) => None,
            None => {
                stream.run += 1;
                let is_sure = stream.run >= EARLIEST + self.caution;
                stream.ahead = is_sure.then(|| Ahead::new(place));
                let ahead = stream.ahead.as_ref();
                ahead.map(|ahead| (place + 1..ahead.end, ahead.marker))
            }
        };
        self.windows.extend(due.map(|(places, marker)| Window {
            stream: stream.number,
            places,
            marker,
        }));
        self.streams.push(stream);
    }
}

impl Stream {
    /// Whether a file may be the next one of this stream.
    fn expects(&self, place: Place) -> bool {
        let end = self.ahead.as_ref().map_or(self.last, |ahead| ahead.end - 1);
        self.last < place && place <= end.max(self.last) + SKIPPED
    }
}

impl Ahead {
    /// Plans two windows after `place`, so that one is stored while the other is read.
    fn new(place: Place) -> Self {
        let [window, _] = WINDOW;
        Self {
            marker: place + window,
            end: place + 2 * window,
            window,
            stored: [0; 2],
            confirmed: false,
        }
    }

    /// Plans another window after all others, because a reader has reached `place`.
    fn next_window(&mut self, place: Place) -> Range<Place> {
        let [_, largest] = WINDOW;
        self.window = (self.window * 2).min(largest);
        self.marker = self.end.max(place + 1);
        self.end = self.marker + self.window;
        self.stored = [self.stored[1], 0];
        self.confirmed = true;
        self.marker..self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Place = 1_000_000;

    /// Stores all files that are due, one byte each.
    fn store(streams: &mut Streams, end: Place) -> Vec<Place> {
        let mut places = Vec::new();
        while let Some(due) = streams.next(end) {
            streams.stored(due, 1);
            places.push(due.place);
        }
        places
    }

    #[test]
    fn two_files_in_order_have_two_windows_stored_but_for_the_marker() {
        let mut streams = Streams::default();
        assert!(streams.read(10));
        assert!(store(&mut streams, ALL).is_empty());
        assert!(streams.read(11));
        let expected: Vec<Place> = (12..27).filter(|&place| place != 19).collect();
        assert_eq!(store(&mut streams, ALL), expected);
    }

    #[test]
    fn a_marker_confirms_the_window_before_it_and_brings_the_next() {
        let mut streams = Streams::default();
        streams.read(10);
        streams.read(11);
        store(&mut streams, ALL);
        assert!(streams.read(19));
        assert_eq!((streams.used, streams.wasted), (7, 0));
        let expected: Vec<Place> = (28..43).collect();
        assert_eq!(store(&mut streams, ALL), expected);
        streams.read(27);
        assert_eq!(streams.used, 7 + 7);
        streams.read(43);
        assert_eq!(streams.used, 7 + 7 + 15);
    }

    #[test]
    fn files_that_are_not_listed_yet_are_stored_when_they_are() {
        let mut streams = Streams::default();
        streams.read(0);
        streams.read(1);
        assert_eq!(store(&mut streams, 4), [2, 3]);
        assert!(store(&mut streams, 4).is_empty());
        assert_eq!(store(&mut streams, 6), [4, 5]);
    }

    #[test]
    fn what_a_reader_has_overtaken_is_not_stored() {
        let mut streams = Streams::default();
        streams.read(0);
        streams.read(1);
        assert_eq!(streams.next(ALL).map(|due| due.place), Some(2));
        assert!(!streams.read(5));
        assert_eq!(streams.next(ALL).map(|due| due.place), Some(6));
    }

    #[test]
    fn reads_in_no_order_store_nothing() {
        let mut streams = Streams::default();
        for place in [500, 3, 77, 9000, 41, 12, 600, 2] {
            assert!(streams.read(place));
        }
        assert!(store(&mut streams, ALL).is_empty());
    }

    #[test]
    fn windows_in_vain_make_it_cautious_and_used_ones_trustful_again() {
        let mut streams = Streams::default();
        let mut stored = 0;
        for place in (1..100).map(|number| number * 1000) {
            streams.read(place);
            streams.read(place + 1);
            stored += store(&mut streams, ALL).len();
        }
        assert!(stored < 100, "{stored}");
        assert_eq!((streams.used, streams.wasted), (0, stored as u64));
        for place in 500_000..500_500 {
            streams.read(place);
            store(&mut streams, ALL);
        }
        assert!(streams.used > 100);
        assert_eq!(streams.caution, 0);
    }

    #[test]
    fn a_program_that_comes_back_to_a_directory_goes_on_there() {
        let mut streams = Streams::default();
        for place in [10, 11, 100, 101, 19, 109] {
            assert!(streams.read(place));
            store(&mut streams, ALL);
        }
        assert_eq!(streams.used, 14);
    }
}
