//! Replays a launch profile: fills the page cache before the launch reads it.
//!
//! Windows are decoded and stored in the page cache in the recorded order. If a reader
//! is faster, the replay skips its window and continues behind it. A program that uses a stored
//! page sends no request, so the use is invisible. Therefore some windows, the probes, are left
//! out: a request for one shows that the launch still follows the profile.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::io::{self, ErrorKind};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use erofs_engine::Engine;
use erofs_engine::erofs_format::{FileType, Nid};
use fuse_transport::PageStore;
use launch_profile::{PAGE, PAGES_PER_WINDOW, Profile, Window};

use super::report::{LaunchFigures, ReplayCounters};
use crate::nodes::Nodes;

/// One window in this many is a probe, except for the first ones.
const PROBE_EVERY: usize = 32;

/// A reader up to this many windows ahead has overtaken the replay; one farther away is unrelated.
const OVERTAKING: usize = 64;

/// Windows of unknown files that a thread decoded, at most, before it waits for their names.
const MOST_UNKNOWN: usize = 8;

/// How long the replay waits for readers, or for names.
const PAUSE: Duration = Duration::from_micros(200);

const WINDOW_BYTES: usize = PAGES_PER_WINDOW as usize * PAGE as usize;

/// State of a window.
const PENDING: u8 = 0;
const TAKEN: u8 = 1;
const LATE: u8 = 2;
const PROBE: u8 = 3;
const PROBE_HIT: u8 = 4;

/// The replay of one profile.
#[derive(Debug)]
pub(super) struct Replay {
    items: Vec<Item>,
    /// Set at start: places of the windows of files.
    places: HashMap<(Nid, u32), usize>,
    next: AtomicUsize,
    /// Set at start: bytes that may be stored, a part of the memory that was free.
    budget: u64,
    /// Atomic: the kernel knows the names of all files.
    named: AtomicBool,
    stopped: AtomicBool,
    running: AtomicUsize,
    /// Threads that decode or store now.
    working: AtomicUsize,
    counters: ReplayCounters,
}

#[derive(Debug)]
struct Item {
    nid: Nid,
    /// Bytes of the file when it was recorded.
    size: u64,
    window: Window,
    state: AtomicU8,
}

/// The mount that the replay fills; it may end at any time.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) engine: Weak<Engine>,
    pub(super) nodes: Nodes,
}

impl Replay {
    /// The first page of `program` is left to its launch, which shows by it that it begins.
    pub(super) fn new(profile: &Profile, program: Nid, budget: u64) -> Self {
        let mut items = Vec::with_capacity(profile.windows.len());
        let mut places = HashMap::with_capacity(profile.windows.len());
        for window in &profile.windows {
            let file = &profile.files[window.file as usize];
            let mut window = *window;
            if window.number == 0 && program == file.nid {
                window.pages &= !1;
            }
            // A hostile profile may name one window twice.
            let Entry::Vacant(place) = places.entry((file.nid, window.number)) else {
                continue;
            };
            if window.pages == 0 {
                continue;
            }
            let is_probe = items.len() % PROBE_EVERY == PROBE_EVERY - 1;
            place.insert(items.len());
            items.push(Item {
                nid: file.nid,
                size: file.size,
                window,
                state: AtomicU8::new(if is_probe { PROBE } else { PENDING }),
            });
        }
        Self {
            items,
            places,
            next: AtomicUsize::new(0),
            budget,
            named: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            working: AtomicUsize::new(0),
            counters: ReplayCounters::default(),
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// What the kernel does not know now is not stored.
    pub(super) fn names_are_known(&self) {
        self.named.store(true, Ordering::Relaxed);
    }

    pub(super) fn count_listed(&self, directories: usize) {
        let listed = &self.counters.listed_directories;
        listed.store(directories as u64, Ordering::Relaxed);
    }

    /// A reader requested bytes of a file: windows of them not stored yet are not needed any more.
    pub(super) fn was_read(&self, nid: Nid, offset: u64, length: usize) {
        let window = |at: u64| u32::try_from(at / WINDOW_BYTES as u64).ok();
        let last = offset.saturating_add(length.saturating_sub(1) as u64);
        let Some((first, last)) = window(offset).zip(window(last)) else {
            return;
        };
        for number in first..=last {
            if let Some(&place) = self.places.get(&(nid, number)) {
                self.window_was_read(place);
            }
        }
    }

    fn window_was_read(&self, place: usize) {
        let Some(item) = self.items.get(place) else {
            return;
        };
        if item.change(PENDING, LATE) {
            self.counters
                .late_bytes
                .fetch_add(item.window.bytes(), Ordering::Relaxed);
            let next = self.next.load(Ordering::Relaxed);
            if place >= next && place - next < OVERTAKING {
                self.next.fetch_max(place + 1, Ordering::Relaxed);
            }
        }
        item.change(PROBE, PROBE_HIT);
    }

    /// One of the threads of the replay, to its end.
    pub(super) fn run(&self, number: usize, threads: usize, parts: &Parts, pages: &PageStore) {
        self.running.fetch_add(1, Ordering::Relaxed);
        let mut buffer = vec![0; WINDOW_BYTES];
        let mut unknown = Unknown::default();
        while !self.is_stopped()
            && self.prefetched() < self.budget
            && let Some(place) = unknown.next(&self.next, self.items.len())
        {
            let item = &self.items[place];
            if !item.change(PENDING, TAKEN) {
                continue;
            }
            let Some(engine) = parts.engine.upgrade() else {
                break;
            };
            self.wait_for_turn(number, threads, || engine.busy_threads());
            let named = self.named.load(Ordering::Relaxed);
            // As a thread of the engine it is no load that would require a higher priority.
            self.working.fetch_add(1, Ordering::Relaxed);
            let busy = engine.busy();
            let stored = store(item, &engine, pages, parts.nodes, &mut buffer);
            drop(busy);
            self.working.fetch_sub(1, Ordering::Relaxed);
            match stored {
                Some(Ok(bytes)) => {
                    self.counters
                        .prefetched_bytes
                        .fetch_add(bytes, Ordering::Relaxed);
                }
                Some(Err(error)) if !named && error.kind() == ErrorKind::NotFound => {
                    item.change(TAKEN, PENDING);
                    unknown.places.push_back(place);
                }
                _ => {
                    self.counters
                        .refused_windows
                        .fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// What is known of a window of a file: whether the launch used it. `None` if it is no probe.
    pub(super) fn probe(&self, nid: Nid, number: u32) -> Option<bool> {
        match self.state(nid, number)? {
            PROBE => Some(false),
            PROBE_HIT => Some(true),
            _ => None,
        }
    }

    /// Whether it stores a window of a file, or has.
    pub(super) fn has_taken(&self, nid: Nid, number: u32) -> bool {
        self.state(nid, number) == Some(TAKEN)
    }

    fn state(&self, nid: Nid, number: u32) -> Option<u8> {
        let item = self.items.get(*self.places.get(&(nid, number))?)?;
        Some(item.state.load(Ordering::Relaxed))
    }

    /// Its windows.
    pub(super) fn windows(&self) -> impl Iterator<Item = (Nid, u32)> {
        self.items.iter().map(|item| (item.nid, item.window.number))
    }

    /// Bytes that were stored.
    pub(super) fn prefetched(&self) -> u64 {
        self.counters.prefetched_bytes.load(Ordering::Relaxed)
    }

    /// Readers come first: as many threads pause as are serving them, all but one of the replay.
    fn wait_for_turn(&self, number: usize, threads: usize, busy: impl Fn() -> usize) {
        /// Longer than most launches: a stream that never ends must not stop the replay for good.
        const PAUSES: usize = 5000;
        let serving = || {
            let working = self.working.load(Ordering::Relaxed);
            busy().saturating_sub(working)
        };
        for _ in 0..PAUSES {
            if number == 0 || number + serving() < threads {
                return;
            }
            thread::sleep(PAUSE);
        }
    }

    /// For the counters, which have the sums of all replays.
    pub(super) fn add_to(&self, figures: &mut LaunchFigures) {
        self.counters.add_to(figures);
        figures.windows += self.items.len();
        let is_done = self.running.load(Ordering::Relaxed) == 0;
        figures.state = match figures.state {
            "replaying" => "replaying",
            _ if is_done => "replayed",
            _ => "replaying",
        };
    }
}

impl Item {
    fn change(&self, from: u8, to: u8) -> bool {
        let order = Ordering::Relaxed;
        self.state.compare_exchange(from, to, order, order).is_ok()
    }
}

/// Windows of files that the kernel does not know yet: their names are looked up meanwhile.
#[derive(Default)]
struct Unknown {
    places: VecDeque<usize>,
    /// One of them was tried last.
    tried: bool,
}

impl Unknown {
    /// The next window, by turns a new one and the first of these; `None` when all are stored.
    fn next(&mut self, next: &AtomicUsize, end: usize) -> Option<usize> {
        let new = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|place| *place < end);
        self.tried = !self.tried && !self.places.is_empty();
        if !self.tried
            && self.places.len() < MOST_UNKNOWN
            && let Some(place) = new()
        {
            return Some(place);
        }
        let place = self.places.pop_front();
        if place.is_some() && (!self.tried || self.places.len() + 1 == MOST_UNKNOWN) {
            thread::sleep(PAUSE);
        }
        place
    }
}

/// Decodes a window and stores its pages; their bytes, or what the kernel refused. `None` if the
/// image does not know the file as it was.
fn store(
    item: &Item,
    engine: &Engine,
    pages: &PageStore,
    nodes: Nodes,
    buffer: &mut [u8],
) -> Option<io::Result<u64>> {
    let inode = engine.inode(item.nid).ok()?;
    if inode.file_type() != FileType::Regular || inode.size != item.size {
        return None;
    }
    let node = nodes.node(item.nid)?;
    let stretches: Vec<(u64, u64)> = item.window.stretches().collect();
    let (first, (last, length)) = (stretches.first()?.0, *stretches.last()?);
    let end = (last + length).min(inode.size);
    let bytes = buffer.get_mut(..usize::try_from(end.checked_sub(first)?).ok()?)?;
    engine.prefetch_at(&inode, first, bytes).ok()?;
    let mut stored = 0;
    for (offset, length) in stretches {
        let from = (offset - first) as usize;
        let to = ((offset + length).min(end).checked_sub(first)?) as usize;
        let part = bytes.get(from..to).filter(|part| !part.is_empty())?;
        if let Err(error) = pages.store(node, offset, part) {
            return Some(Err(error));
        }
        stored += part.len() as u64;
    }
    Some(Ok(stored))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use launch_profile::{Name, RecordedFile};

    fn replay(windows: u32) -> Replay {
        replay_of(1, 0..windows)
    }

    /// With a window of each of these numbers, of file 7.
    pub(crate) fn replay_of(program: Nid, numbers: impl Iterator<Item = u32>) -> Replay {
        let name = Name {
            directory: None,
            name: b"a".to_vec(),
        };
        let window = |number| Window {
            file: 0,
            number,
            pages: 0b11,
            at_ms: 0,
        };
        let profile = Profile {
            files: vec![RecordedFile {
                name,
                nid: 7,
                size: 1 << 40,
            }],
            windows: numbers.map(window).collect(),
            ..Profile::default()
        };
        Replay::new(&profile, program, 0)
    }

    /// As if it had stored so many bytes.
    pub(crate) fn count_stored(replay: &Replay, bytes: u64) {
        let prefetched = &replay.counters.prefetched_bytes;
        prefetched.store(bytes, Ordering::Relaxed);
    }

    /// As if it had stored all windows.
    pub(crate) fn take_all(replay: &Replay) {
        for item in &replay.items {
            item.state.store(TAKEN, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_first_page_of_a_program_is_left_to_its_launch() {
        let replay = replay_of(7, [0, 1, 0].into_iter());
        let pages: Vec<u32> = replay.items.iter().map(|item| item.window.pages).collect();
        assert_eq!(pages, [0b10, 0b11]);
        assert_eq!(replay.places[&(7, 0)], 0, "of a window that comes twice");
    }

    #[test]
    fn a_reader_that_overtakes_takes_the_replay_along() {
        let replay = replay(100);
        replay.was_read(7, 5 * WINDOW_BYTES as u64, 2 * WINDOW_BYTES);
        assert_eq!(replay.next.load(Ordering::Relaxed), 7);
        assert_eq!(replay.counters.late_bytes.load(Ordering::Relaxed), 4 * PAGE);
        // Another reader, far away.
        replay.was_read(7, 90 * WINDOW_BYTES as u64, 1);
        assert_eq!(replay.next.load(Ordering::Relaxed), 7);
        replay.was_read(8, 0, 1 << 20);
        assert_eq!(replay.counters.late_bytes.load(Ordering::Relaxed), 6 * PAGE);
    }

    /// How often it is asked which threads are busy, which are so many one time after another.
    fn looks(replay: &Replay, number: usize, threads: usize, busy: &[usize]) -> usize {
        let looks = std::cell::Cell::new(0);
        replay.wait_for_turn(number, threads, || {
            looks.set(looks.get() + 1);
            busy[looks.get() - 1]
        });
        looks.get()
    }

    #[test]
    fn readers_come_first() {
        let replay = replay(1);
        assert_eq!(
            looks(&replay, 0, 2, &[]),
            0,
            "one thread goes on in any case"
        );
        assert_eq!(looks(&replay, 1, 2, &[0]), 1);
        assert_eq!(looks(&replay, 1, 2, &[1, 2, 1, 0]), 4);
        assert_eq!(looks(&replay, 1, 4, &[3, 2]), 2, "as many pause as serve");
        replay.working.store(2, Ordering::Relaxed);
        assert_eq!(looks(&replay, 1, 2, &[3, 2]), 2, "its own are no readers");
    }

    #[test]
    fn a_probe_shows_whether_the_launch_asks_for_it() {
        let replay = replay(64);
        replay.was_read(7, 31 * WINDOW_BYTES as u64, 1);
        let probes = [30, 31, 63, 64].map(|number| replay.probe(7, number));
        assert_eq!(probes, [None, Some(true), Some(false), None]);
    }

    #[test]
    fn windows_of_unknown_files_are_tried_again_between_new_ones() {
        let (next, mut unknown) = (AtomicUsize::new(0), Unknown::default());
        let mut order = Vec::new();
        // Windows 0 and 2 are of a file that becomes known after five tries.
        while let Some(place) = unknown.next(&next, 4) {
            if order.len() < 5 && place % 2 == 0 {
                unknown.places.push_back(place);
            }
            order.push(place);
        }
        assert_eq!(order, [0, 0, 1, 0, 2, 0, 3, 2]);
    }

    #[test]
    fn no_more_windows_than_these_are_decoded_for_unknown_files() {
        let (next, mut unknown) = (AtomicUsize::new(0), Unknown::default());
        for _ in 0..100 {
            let place = unknown.next(&next, 1000).unwrap();
            unknown.places.push_back(place);
        }
        assert_eq!(unknown.places.len(), MOST_UNKNOWN);
        assert_eq!(next.load(Ordering::Relaxed), MOST_UNKNOWN);
    }
}
