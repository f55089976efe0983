//! Recognises random faults in one file from the requests of the page cache.
//!
//! Programs that jump about in a file usually use neighbouring parts of it, so some of their
//! windows become adjacent. Windows around random faults stay apart until they cover much of the
//! file, which takes longer in a larger file. If a request for a second page of a declined window
//! shows that the window was needed after all, more windows must be apart before the next window is
//! declined.

use std::collections::VecDeque;
use std::ops::Range;

/// Number of reads, each far from earlier ones, before a window is declined, if no declined window
/// was needed.
const EARLIEST: u32 = 8;

/// Maximum value of `caution`.
const LATEST: u32 = 1 << 12;

/// Weight of a read next to an earlier one, relative to a read far from all others.
const BESIDE: u32 = 8;

/// Number of earlier windows, and of earlier pages, that a read is compared with.
const COMPARED: usize = 16;

/// Largest distance in bytes between pages that count as next to each other.
const PAGES_BESIDE: u64 = 128 << 10;

/// Size in bytes of one access, such as a record that spans pages.
const ACCESS: u64 = 16 << 10;

/// Number of declined windows remembered. The kernel stops reading around after a hundred misses in
/// one open file.
const REMEMBERED: usize = 256;

/// Number of reads within which a request for a second page shows that a window was needed; later
/// requests prove nothing.
const SOON: u64 = 8;

/// Number of reads after a declined window within which the kernel requests the page that the
/// window was read for. A later request may be for pages around it that have left the page cache.
const AT_ONCE: u64 = 2;

/// Number of consecutive declined windows, none of them needed, after which `caution` is halved.
const TRUSTED: u32 = 8;

#[derive(Debug, Default)]
pub(super) struct File {
    /// Ordered by time; the latest is last.
    windows: VecDeque<Window>,
    /// First pages of accesses while windows are declined; the latest is last.
    pages: VecDeque<u64>,
    declined: VecDeque<Declined>,
    /// Number of reads far from all others, minus [`BESIDE`] for each read next to another one.
    apart: u32,
    /// Number of reads far from all others that are required beyond [`EARLIEST`].
    caution: u32,
    /// Number of windows declined since one was needed, or since the caution was halved.
    unneeded: u32,
    reads: u64,
}

#[derive(Debug)]
struct Window {
    range: Range<u64>,
    is_declined: bool,
}

#[derive(Debug)]
struct Declined {
    range: Range<u64>,
    /// Number of the read that was declined.
    number: u64,
    /// Offset of the first page that was requested from the window, and the number of the read that
    /// requested it.
    asked: Option<(u64, u64)>,
}

/// The conclusion from a read of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shows {
    Nothing,
    /// A declined window was needed.
    Needed,
    /// The kernel uses large folios in a declined window: reading one of them takes as long as
    /// reading a window, and declining such a read would pass an error to programs.
    LargePages,
}

impl File {
    /// Whether the reads of this file are random.
    pub(super) fn is_random(&self) -> bool {
        self.apart > EARLIEST + self.caution
    }

    /// Whether to decline a window. The kernel's longest window has `longest` bytes.
    pub(super) fn window(&mut self, range: &Range<u64>, longest: u64) -> bool {
        self.reads += 1;
        if self.declined.iter().any(|it| meets(&it.range, range)) {
            self.declined.retain(|it| !meets(&it.range, range));
            return false;
        }
        let declines = match self.continues(range, longest) {
            Some(is_declined) => is_declined,
            None => self.begin(range, longest),
        };
        if declines {
            let declined = Declined {
                range: range.clone(),
                number: self.reads,
                asked: None,
            };
            push(&mut self.declined, REMEMBERED, declined);
        }
        declines
    }

    /// Whether the window that this request continues was declined; `None` if the request begins
    /// another window. The requests of a window may arrive in either order and on different
    /// threads, and may leave out parts that are cached.
    fn continues(&mut self, range: &Range<u64>, longest: u64) -> Option<bool> {
        let last = self.windows.back_mut()?;
        let joined = last.range.start.min(range.start)..last.range.end.max(range.end);
        if joined.end - joined.start > longest {
            return None;
        }
        last.range = joined;
        Some(last.is_declined)
    }

    /// Whether to decline the window that begins with this request.
    fn begin(&mut self, range: &Range<u64>, longest: u64) -> bool {
        let is_beside = |it: &Window| gap(&it.range, range) < longest;
        self.count(self.windows.iter().any(is_beside));
        // A file read from its beginning is not random.
        let is_declined = self.is_random() && range.start > 0;
        if is_declined {
            self.trust();
        }
        let range = range.clone();
        push(&mut self.windows, COMPARED, Window { range, is_declined });
        is_declined
    }

    fn count(&mut self, is_beside: bool) {
        self.apart = match is_beside {
            true => self.apart.saturating_sub(BESIDE),
            false => (self.apart + 1).min(EARLIEST + self.caution + 2 * BESIDE),
        };
    }

    /// Notes that a window is declined, and lowers the caution after enough windows that were not
    /// needed.
    fn trust(&mut self) {
        self.unneeded += 1;
        if self.unneeded == TRUSTED {
            (self.unneeded, self.caution) = (0, self.caution / 2);
        }
    }

    /// Notes that a page was requested, or, unless `single` is set, several pages.
    pub(super) fn page(&mut self, offset: u64, single: bool) -> Shows {
        self.reads += 1;
        self.follow(offset);
        let now = self.reads;
        let mut declined = self.declined.iter_mut();
        let Some(declined) = declined.find(|it| it.range.contains(&offset)) else {
            return Shows::Nothing;
        };
        if !single && now - declined.number <= AT_ONCE {
            return Shows::LargePages;
        }
        let Some((first, at)) = declined.asked else {
            declined.asked = Some((offset, now));
            return Shows::Nothing;
        };
        if now - at > SOON || first.abs_diff(offset) <= ACCESS {
            return Shows::Nothing;
        }
        (self.apart, self.unneeded) = (0, 0);
        self.caution = (self.caution * 2 + EARLIEST).min(LATEST);
        Shows::Needed
    }

    /// Once the kernel reads single pages, judges by these reads whether the reads of the file are
    /// random.
    fn follow(&mut self, offset: u64) {
        let distance = |page: &u64| page.abs_diff(offset);
        let nearest = self.pages.iter().map(distance).min().unwrap_or(u64::MAX);
        if nearest <= ACCESS {
            return;
        }
        self.count(nearest <= PAGES_BESIDE);
        push(&mut self.pages, COMPARED, offset);
    }
}

/// Appends `latest` to the queue, and drops the oldest element if there are already `most`.
fn push<T>(queue: &mut VecDeque<T>, most: usize, latest: T) {
    if queue.len() == most {
        queue.pop_front();
    }
    queue.push_back(latest);
}

fn meets(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Bytes between two ranges; 0 if they touch.
fn gap(one: &Range<u64>, other: &Range<u64>) -> u64 {
    let (first, second) = match one.start < other.start {
        true => (one, other),
        false => (other, one),
    };
    second.start.saturating_sub(first.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF: u64 = 256 << 10;
    const LONGEST: u64 = 2 * HALF;
    const SIZE: u64 = 1 << 30;

    /// Pages that a reader jumps to, in a fixed pattern. Their windows never overlap, because the
    /// kernel does not request pages that it has.
    fn jumps() -> impl Iterator<Item = u64> {
        let step = |slot: &u64| Some((slot * 773 + 331) % (SIZE >> 20));
        let slots = std::iter::successors(Some(77), step);
        slots.map(|slot| (slot << 20) + HALF + (slot * 37 % 128) * 4096)
    }

    /// Sends the two requests for the window around a fault and, if they are declined, the request
    /// for the page.
    fn fault(file: &mut File, page: u64) -> bool {
        let first = file.window(&(page - HALF..page), LONGEST);
        let second = file.window(&(page..page + HALF), LONGEST);
        assert_eq!(first, second, "both requests get the same answer");
        if first {
            file.page(page, true);
        }
        first
    }

    #[test]
    fn windows_of_random_faults_are_declined_after_the_first_ones() {
        let mut file = File::default();
        let declined: Vec<bool> = jumps().take(100).map(|at| fault(&mut file, at)).collect();
        let count = declined.iter().filter(|it| **it).count();
        assert!(declined[..8].iter().all(|it| !it), "{declined:?}");
        assert!(count > 70, "{count}");
        assert!(file.is_random());
    }

    #[test]
    fn the_requests_of_a_window_may_come_in_either_order() {
        let mut file = File::default();
        for page in jumps().take(20) {
            file.window(&(page..page + HALF), LONGEST);
            file.window(&(page - HALF..page), LONGEST);
        }
        let page = 3 << 29;
        assert!(file.window(&(page..page + HALF), LONGEST));
        assert!(file.window(&(page - HALF..page), LONGEST));
    }

    #[test]
    fn nothing_of_a_stream_is_declined() {
        let mut file = File::default();
        for at in (0..SIZE).step_by(HALF as usize) {
            assert!(!file.window(&(at..at + HALF), LONGEST), "{at}");
        }
    }

    #[test]
    fn nothing_of_a_program_is_declined_whose_windows_come_to_lie_beside_each_other() {
        let mut file = File::default();
        for page in jumps().take(100) {
            for number in 0..4 {
                let begin = page + number * LONGEST;
                assert!(!file.window(&(begin..begin + LONGEST), LONGEST));
            }
        }
    }

    #[test]
    fn windows_that_are_needed_after_all_make_it_cautious() {
        let mut file = File::default();
        let mut declined = 0;
        for page in jumps().take(1000) {
            if fault(&mut file, page) {
                declined += 1;
                file.page(page + (64 << 10), true);
            }
        }
        assert!((1..12).contains(&declined), "{declined}");
    }

    #[test]
    fn a_range_that_was_declined_is_served_when_it_is_asked_for_again() {
        let mut file = File::default();
        let last = jumps().take(40).filter(|at| fault(&mut file, *at)).last();
        let page = last.expect("some were declined");
        assert!(!file.window(&(page..page + HALF), LONGEST));
    }

    #[test]
    fn records_across_two_pages_are_random_too() {
        let mut file = File::default();
        for page in jumps().take(500) {
            if fault(&mut file, page) {
                file.page(page + 4096, true);
            }
        }
        assert!(file.is_random());
        assert!(file.caution <= EARLIEST, "{}", file.caution);
    }

    #[test]
    fn single_pages_in_order_end_it() {
        let mut file = File::default();
        for at in jumps().take(50) {
            fault(&mut file, at);
        }
        assert!(file.is_random());
        for page in (SIZE / 2..SIZE / 2 + (256 << 10)).step_by(4096) {
            file.page(page, true);
        }
        assert!(!file.is_random());
    }

    #[test]
    fn large_pages_show_at_once() {
        let declined = || {
            let mut file = File::default();
            let mut pages = jumps();
            let page = loop {
                let page = pages.next().unwrap();
                if file.window(&(page - HALF..page + HALF), LONGEST) {
                    break page;
                }
            };
            (file, page)
        };
        let (mut file, page) = declined();
        assert_eq!(file.page(page, false), Shows::LargePages);
        let (mut file, page) = declined();
        for _ in 0..10 {
            file.page(page, true);
        }
        assert_eq!(file.page(page, false), Shows::Nothing);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut file = File::default();
        for at in jumps().take(10_000) {
            file.window(&(at - HALF..at + HALF), LONGEST);
            file.page(at, true);
        }
        let lengths = [file.windows.len(), file.pages.len(), file.declined.len()];
        assert!(lengths.iter().all(|it| *it <= REMEMBERED), "{lengths:?}");
    }
}
