//! Replays a launch profile as a client of the mount, so that the kernel has names and pages before
//! the launch requests them.
//!
//! The steps of a replay are done in order, by the threads of [`Turns`](crate::turns::Turns). If a
//! reader is faster, the replay skips the reader's window and continues after it. A program that
//! uses cached names and pages sends no request, so the use is invisible. Therefore some windows,
//! the probes, are left out: a request for one shows that the launch still follows the profile.

use std::collections::HashMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use launch_profile::{PAGE, PAGES_PER_WINDOW, Profile, Step, Window};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::client::{self, Room};
use crate::reader::Registrar;

/// Number of windows from one probe to the next, and from the beginning to the first probe.
const PROBE_EVERY: usize = 32;

/// A reader up to this many steps ahead has overtaken the replay; a reader farther ahead does
/// something else.
const OVERTAKING: usize = 24;

/// Bounds of the number of bytes that one call reads ahead. Every kernel accepts the lower one, and
/// over `/dev/fuse` longer calls would become several requests.
const LEAST: u64 = 128 << 10;
const MOST: u64 = 256 << 10;

/// A gap of up to this many bytes between two parts of a file is read as well: another request
/// would cost more.
const GAP: u64 = 16 * PAGE;

/// Windows of a file are read together only if a range of this many bytes holds them all. Each
/// pcluster is then decoded once, by one request.
const TOGETHER: u64 = 512 << 10;

/// Windows are read together only with at most this many other steps of the launch between them.
const NEAR: usize = 16;

pub(crate) const WINDOW_BYTES: u64 = PAGES_PER_WINDOW as u64 * PAGE;

/// States of a window.
const PENDING: u8 = 0;
const TAKEN: u8 = 1;
const LATE: u8 = 2;
const PROBE: u8 = 3;
const PROBE_HIT: u8 = 4;

/// The replay of one profile.
#[derive(Debug, Default)]
pub(crate) struct Replay {
    program: Vec<u8>,
    items: Vec<Item>,
    files: Vec<File>,
    /// Set by `new`: indices of files by path.
    by_path: HashMap<Vec<u8>, usize>,
    /// Set by `new`: for each window of a file, the item that reads it, and its position in that
    /// item.
    places: HashMap<(usize, u32), (usize, usize)>,
    next: AtomicUsize,
    /// Set by `new`: how many bytes may be read ahead, a part of the memory that was free then.
    budget: u64,
    /// Set by `new`.
    read_ahead: Arc<KernelReadAhead>,
    stopped: AtomicBool,
    /// Threads that are doing a step.
    inside: AtomicUsize,
    prefetched: AtomicU64,
    late: AtomicU64,
    refused: AtomicU64,
    listed: AtomicU64,
}

/// The file that a thread read last, which the next step often reads as well.
pub(crate) type OpenFile = Option<(usize, OwnedFd)>;

/// How much the kernel reads ahead at a time. The handshake sets this, possibly after the companion
/// has started but always before the mount answers its first request.
#[derive(Debug, Default)]
pub(crate) struct KernelReadAhead {
    file: Option<std::fs::File>,
    bytes: OnceLock<u64>,
}

impl KernelReadAhead {
    /// `file` contains the size in KiB.
    pub(crate) fn new(file: Option<std::fs::File>) -> Self {
        let bytes = OnceLock::new();
        Self { file, bytes }
    }

    /// The size in bytes. Call this only once the mount has answered a request.
    fn bytes(&self) -> u64 {
        *self.bytes.get_or_init(|| {
            let mut text = [0; 32];
            let length = self.file.as_ref().map(|file| file.read_at(&mut text, 0));
            let length = length.and_then(Result::ok).unwrap_or(0);
            let kib = str::from_utf8(&text[..length]).ok();
            let kib = kib.and_then(|kib| kib.trim().parse::<u64>().ok());
            (kib.unwrap_or(0).saturating_mul(1 << 10)).clamp(LEAST, MOST)
        })
    }
}

#[derive(Debug)]
enum Item {
    List(Vec<u8>),
    LookUp(Vec<u8>),
    /// Find the inode of a file whose content is left to the launch.
    Find(usize),
    /// Read windows of a file together.
    Read(usize, Vec<Part>),
}

#[derive(Debug)]
struct Part {
    window: Window,
    state: AtomicU8,
}

#[derive(Debug)]
struct File {
    path: Vec<u8>,
    /// Size in bytes when the launch was recorded.
    size: u64,
    /// Atomic: its inode number, once it has been found.
    ino: AtomicU64,
    /// Atomic: whether the server has been told what will be read from the file.
    is_told: AtomicBool,
    /// Set by [`Replay::new`]: indices of the items that read from the file.
    items: Vec<usize>,
}

impl Replay {
    /// Creates the replay. The first page of `program` is left to its launch, which thereby shows
    /// that it begins.
    pub(crate) fn new(
        profile: &Profile,
        program: &[u8],
        budget: u64,
        read_ahead: Arc<KernelReadAhead>,
    ) -> Self {
        let files = profile.files.iter().map(|file| File {
            path: profile.path(&file.name),
            size: file.size,
            ino: AtomicU64::new(0),
            is_told: AtomicBool::new(false),
            items: Vec::new(),
        });
        let files: Vec<File> = files.collect();
        let by_path = files.iter().enumerate();
        let by_path = by_path.map(|(place, file)| (file.path.clone(), place));
        let mut this = Self {
            program: program.to_vec(),
            items: vec![Item::List(Vec::new())],
            by_path: by_path.collect(),
            files,
            budget,
            read_ahead,
            ..Self::default()
        };
        let mut windows = 0_usize;
        for step in profile.steps() {
            match step {
                Step::List(directory, _) => {
                    let path = profile.directory_path(Some(directory));
                    this.items.push(Item::List(path));
                }
                Step::LookUp(name) => this.items.push(Item::LookUp(profile.path(&name.name))),
                Step::Read(window) => {
                    let file = window.file as usize;
                    let mut window = *window;
                    if window.number == 0 && this.files[file].path == program {
                        window.pages &= !1;
                    }
                    // A hostile profile may name the same window twice.
                    if this.places.contains_key(&(file, window.number)) {
                        continue;
                    }
                    if window.pages == 0 {
                        this.items.push(Item::Find(file));
                        continue;
                    }
                    windows += 1;
                    let is_probe = usize::is_multiple_of(windows, PROBE_EVERY);
                    this.add(file, window, is_probe);
                }
            }
        }
        this
    }

    /// Adds a window. It is read together with the previous windows of its file if it is near them.
    /// A probe separates its neighbours.
    fn add(&mut self, file: usize, window: Window, is_probe: bool) {
        let state = AtomicU8::new(if is_probe { PROBE } else { PENDING });
        let (number, part) = (window.number, Part { window, state });
        let end = self.items.len();
        let last = self.items.iter_mut().enumerate().rev().take(NEAR);
        let mut last = last.filter_map(|(place, item)| match item {
            Item::Read(of, parts) if *of == file => Some((place, parts)),
            _ => None,
        });
        let place = match last.next() {
            Some((place, parts)) if accepts(parts, &part) => {
                parts.push(part);
                (place, parts.len() - 1)
            }
            _ => {
                self.items.push(Item::Read(file, vec![part]));
                self.files[file].items.push(end);
                (end, 0)
            }
        };
        self.places.insert((file, number), place);
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_running(&self) -> bool {
        self.has_steps() || self.inside.load(Ordering::Relaxed) > 0
    }

    /// The path of the program that is replayed.
    pub(crate) fn program(&self) -> &[u8] {
        &self.program
    }

    /// Notes that a reader requested bytes of a file: windows of these bytes that have not been
    /// read yet are no longer needed.
    pub(crate) fn was_read(&self, file: usize, offset: u64, length: u64) {
        let window = |at: u64| u32::try_from(at / WINDOW_BYTES).ok();
        let last = offset.saturating_add(length.saturating_sub(1));
        let Some((first, last)) = window(offset).zip(window(last)) else {
            return;
        };
        // No request of the kernel spans more windows.
        for number in (first..=last).take(4096) {
            if let Some(place) = self.places.get(&(file, number)) {
                self.window_was_read(*place);
            }
        }
    }

    fn window_was_read(&self, (place, number): (usize, usize)) {
        let Some(part) = self.parts(place).get(number) else {
            return;
        };
        if part.change(PENDING, LATE) {
            self.late.fetch_add(part.window.bytes(), Ordering::Relaxed);
            let next = self.next.load(Ordering::Relaxed);
            if place >= next && place - next < OVERTAKING {
                // The remaining windows of this item are still needed.
                self.next.fetch_max(place, Ordering::Relaxed);
            }
        }
        part.change(PROBE, PROBE_HIT);
    }

    /// The parts that are read together, all from one item.
    fn parts(&self, place: usize) -> &[Part] {
        match &self.items[place] {
            Item::Read(_, parts) => parts,
            _ => &[],
        }
    }

    /// The index of a file, by its inode number or its path.
    pub(crate) fn file(&self, ino: u64, path: Option<&[u8]>) -> Option<usize> {
        let is_it = |file: &File| file.ino.load(Ordering::Relaxed) == ino;
        let by_path = || self.by_path.get(path?).copied();
        by_path().or_else(|| self.files.iter().position(is_it).filter(|_| ino != 0))
    }

    /// The path and size in bytes of a file.
    pub(crate) fn describe(&self, file: usize) -> (&[u8], u64) {
        let file = &self.files[file];
        (&file.path, file.size)
    }

    /// Directories that have been or will be listed.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &[u8]> {
        self.items.iter().filter_map(|item| match item {
            Item::List(path) => Some(&path[..]),
            _ => None,
        })
    }

    /// Whether there is anything left to do.
    pub(crate) fn has_steps(&self) -> bool {
        !self.is_stopped()
            && self.prefetched() < self.budget
            && self.next.load(Ordering::Relaxed) < self.items.len()
    }

    /// Notes that a thread is about to do a step, until it [leaves](Self::leave).
    pub(crate) fn enter(&self) {
        self.inside.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.inside.fetch_sub(1, Ordering::Relaxed);
    }

    /// Does the next step.
    pub(crate) fn step(
        &self,
        root: &OwnedFd,
        room: &mut Room,
        open: &mut OpenFile,
        tells: &Registrar,
    ) {
        let place = self.next.fetch_add(1, Ordering::Relaxed);
        match self.items.get(place) {
            // A missing file is no error here; the launch will notice it too.
            Some(Item::List(path)) => {
                let listed = client::list(root, path, room, |_, _| !self.is_stopped());
                self.listed
                    .fetch_add(listed.is_ok().into(), Ordering::Relaxed);
            }
            Some(Item::LookUp(path)) => drop(client::look_up(root, path)),
            Some(Item::Read(file, parts)) => {
                let taken = parts.iter().filter(|part| part.change(PENDING, TAKEN));
                let mut taken: Vec<Window> = taken.map(|part| part.window).collect();
                if taken.is_empty() {
                    return self.find(*file, root);
                }
                taken.sort_unstable_by_key(|window| window.number);
                let (counter, count) = match self.read(*file, &taken, root, open, tells) {
                    Ok(bytes) => (&self.prefetched, bytes),
                    Err(_) => (&self.refused, taken.len() as u64),
                };
                counter.fetch_add(count, Ordering::Relaxed);
            }
            Some(Item::Find(file)) => self.find(*file, root),
            None => {}
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Looks up a file's name; its inode number then identifies the launch's requests.
    fn find(&self, file: usize, root: &OwnedFd) {
        let file = &self.files[file];
        if let Ok(inode) = client::status(root, &file.path) {
            file.ino.store(inode.ino, Ordering::Relaxed);
        }
    }

    /// Reads windows of a file ahead; returns the number of bytes.
    fn read(
        &self,
        number: usize,
        windows: &[Window],
        root: &OwnedFd,
        open: &mut OpenFile,
        tells: &Registrar,
    ) -> rustix::io::Result<u64> {
        let file = &self.files[number];
        if open.as_ref().is_none_or(|(last, _)| *last != number) {
            *open = None;
            let (opened, ino, size) = client::open_file(root, &file.path)?;
            file.ino.store(ino, Ordering::Relaxed);
            if !file.is_told.swap(true, Ordering::Relaxed) {
                self.tell(number, ino, tells);
            }
            if size != file.size {
                return Err(Errno::STALE);
            }
            *open = Some((number, opened));
        }
        let Some((_, opened)) = open else {
            return Err(Errno::STALE);
        };
        let (ranges, bytes) = ranges(windows, file.size);
        for Range { start, end } in ranges {
            let mut at = start;
            while at < end {
                let length = (end - at).min(self.read_ahead.bytes());
                client::read_ahead(opened, at, length)?;
                at += length;
            }
        }
        Ok(bytes)
    }

    /// Tells the server which parts of a file will be read next.
    fn tell(&self, number: usize, ino: u64, tells: &Registrar) {
        let File { items, size, .. } = &self.files[number];
        let parts = items.iter().flat_map(|place| self.parts(*place));
        let windows = parts.map(|part| &part.window);
        for (offset, length) in windows.flat_map(Window::stretches) {
            tells.will_read(ino, offset, length.min(size.saturating_sub(offset)));
        }
    }

    /// Whether the launch used a window of a file; `None` if it is not a probe.
    pub(crate) fn probe(&self, path: &[u8], number: u32) -> Option<bool> {
        match self.state(path, number)? {
            PROBE => Some(false),
            PROBE_HIT => Some(true),
            _ => None,
        }
    }

    /// Whether the replay reads, or has read, a window of a file ahead.
    pub(crate) fn has_taken(&self, path: &[u8], number: u32) -> bool {
        self.state(path, number) == Some(TAKEN)
    }

    fn state(&self, path: &[u8], number: u32) -> Option<u8> {
        let file = *self.by_path.get(path)?;
        let (place, number) = *self.places.get(&(file, number))?;
        Some(self.parts(place).get(number)?.state.load(Ordering::Relaxed))
    }

    /// All windows of the replay, probes included: the path of the file, and the number of the
    /// window.
    pub(crate) fn windows(&self) -> impl Iterator<Item = (&[u8], u32)> {
        let reads = self.items.iter().filter_map(|item| match item {
            Item::Read(file, parts) => Some((&self.files[*file].path[..], parts)),
            _ => None,
        });
        reads.flat_map(|(path, parts)| parts.iter().map(move |part| (path, part.window.number)))
    }

    /// The number of windows that could not be read, and the number of all windows.
    pub(crate) fn refused(&self) -> (usize, usize) {
        let refused = self.refused.load(Ordering::Relaxed);
        (refused as usize, self.places.len())
    }

    /// Bytes that were read ahead.
    pub(crate) fn prefetched(&self) -> u64 {
        self.prefetched.load(Ordering::Relaxed)
    }

    pub(crate) fn report(&self) -> Value {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        json!({
            "state": if self.is_running() { "replaying" } else { "replayed" },
            "windows": self.windows().count(),
            "listed_directories": load(&self.listed),
            "prefetched_bytes": self.prefetched(),
            "late_bytes": load(&self.late),
            "refused_windows": load(&self.refused),
        })
    }
}

/// Whether a window is read together with those in `parts`, which are of the same file.
fn accepts(parts: &[Part], part: &Part) -> bool {
    let is_pending = |part: &Part| part.state.load(Ordering::Relaxed) == PENDING;
    let bounds = |part: &Part| {
        let first = part.window.offset();
        first..first + WINDOW_BYTES
    };
    let (new, old) = (bounds(part), parts.iter().map(bounds));
    let all = old.reduce(|one, other| one.start.min(other.start)..one.end.max(other.end));
    all.is_some_and(|all| all.end.max(new.end) - all.start.min(new.start) <= TOGETHER)
        && parts.iter().chain([part]).all(is_pending)
}

/// The ranges to read for windows in their order, and the number of bytes in them.
fn ranges(windows: &[Window], size: u64) -> (Vec<Range<u64>>, u64) {
    let (mut ranges, mut bytes) = (Vec::<Range<u64>>::new(), 0);
    for (start, length) in windows.iter().flat_map(Window::stretches) {
        let end = (start + length).min(size);
        bytes += end.saturating_sub(start);
        match ranges.last_mut() {
            _ if end <= start => {}
            Some(last) if start <= last.end + GAP => last.end = end,
            _ => ranges.push(start..end),
        }
    }
    (ranges, bytes)
}

impl Part {
    fn change(&self, from: u8, to: u8) -> bool {
        let order = Ordering::Relaxed;
        self.state.compare_exchange(from, to, order, order).is_ok()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use launch_profile::text::Builder;

    fn replay(profile: &Profile, program: &str) -> Replay {
        Replay::new(profile, program.as_bytes(), u64::MAX, Arc::default())
    }

    /// A replay with one window for each of these numbers, in the file `f`.
    pub(crate) fn replay_of(program: &str, numbers: impl Iterator<Item = u32>) -> Replay {
        let mut builder = Builder::default();
        let file = builder.file(1 << 40, b"f").unwrap();
        numbers.for_each(|number| builder.read(0, file, number, 0b11).unwrap());
        replay(&builder.finish(), program)
    }

    impl Replay {
        /// Pretends that the next step has been done.
        pub(crate) fn skip(&self) {
            self.next.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Pretends that the replay has read this many bytes ahead.
    pub(crate) fn count(replay: &Replay, bytes: u64) {
        replay.prefetched.store(bytes, Ordering::Relaxed);
    }

    /// Pretends that the replay has read all windows ahead.
    pub(crate) fn take_all(replay: &Replay) {
        let parts = (0..replay.items.len()).flat_map(|place| replay.parts(place));
        parts.for_each(|part| part.state.store(TAKEN, Ordering::Relaxed));
    }

    #[test]
    fn the_first_page_of_a_program_is_left_to_its_launch() {
        let replay = replay_of("f", [0, 1, 0].into_iter());
        let parts = (0..replay.items.len()).flat_map(|place| replay.parts(place));
        let pages: Vec<u32> = parts.map(|part| part.window.pages).collect();
        assert_eq!(pages, [0b10, 0b11]);
    }

    #[test]
    fn neighbouring_windows_are_read_together_and_probes_part_them() {
        let mut builder = Builder::default();
        let all = u32::MAX;
        let [f, g] = [b"f", b"g"].map(|name| builder.file(12 << 20, name).unwrap());
        let mut read = |file, number, pages| builder.read(0, file, number, pages).unwrap();
        for (file, number) in [(f, 9), (f, 7), (g, 0), (f, 8)] {
            read(file, number, all);
        }
        read(f, 6, 1 << 31);
        // 512 KiB is the limit, and a window that is far away stays separate.
        [5, 40, 41].iter().for_each(|number| read(f, *number, all));
        (0..50).for_each(|number| read(g, number, all));
        let replay = replay(&builder.finish(), "");
        let numbers = |place| replay.parts(place).iter().map(|part| part.window.number);
        let items = (0..replay.items.len()).map(|place| numbers(place).collect());
        let items: Vec<Vec<u32>> = items.filter(|item: &Vec<u32>| !item.is_empty()).collect();
        assert_eq!(items[..3], [vec![9, 7, 8, 6], vec![0, 1, 2, 3], vec![5]]);
        assert!(items.contains(&vec![40, 41]), "{items:?}");
        let probes = replay
            .windows()
            .filter(|(path, number)| replay.probe(path, *number).is_some());
        let probes: Vec<u32> = probes.map(|(_, number)| number).collect();
        assert!(
            items.contains(&probes) && probes.len() == 1,
            "{probes:?} {items:?}"
        );
    }

    #[test]
    fn windows_become_ranges_in_their_order() {
        let window = |number, pages| Window {
            file: 0,
            number,
            pages,
            at_ms: 0,
        };
        let size = 2 * WINDOW_BYTES + 5000;
        let of = |windows: &[Window]| ranges(windows, size);
        let all = [window(0, !1), window(1, u32::MAX), window(2, 0b1011)];
        let (ranges, bytes) = of(&all);
        assert!(ranges.iter().eq([&(PAGE..size)]), "{ranges:?}");
        assert_eq!(bytes, size - PAGE);
        let far = [window(0, 1 | 1 << 31), window(2, 1 << 5)];
        let last = WINDOW_BYTES - PAGE..WINDOW_BYTES;
        assert_eq!(of(&far), (vec![0..PAGE, last], 2 * PAGE));
    }

    #[test]
    fn a_reader_that_overtakes_takes_the_replay_along() {
        let replay = replay_of("p", 0..100);
        let read = |window: u64, windows: u64| {
            let file = replay.file(0, Some(b"f")).unwrap();
            replay.was_read(file, window * WINDOW_BYTES, windows * WINDOW_BYTES);
        };
        read(5, 2);
        // After the root's listing; windows 4 and 7 of this item are still read.
        assert_eq!(replay.next.load(Ordering::Relaxed), 2);
        assert_eq!(replay.report()["late_bytes"], 4 * PAGE);
        // Another reader, far away.
        read(99, 1);
        assert_eq!(replay.next.load(Ordering::Relaxed), 2);
        assert_eq!(replay.report()["late_bytes"], 6 * PAGE);
        assert_eq!(replay.file(0, None), None);
    }

    #[test]
    fn a_probe_shows_whether_the_launch_asks_for_it() {
        let replay = replay_of("p", 0..64);
        replay.was_read(0, 31 * WINDOW_BYTES, 1);
        let probes = [30, 31, 63, 64].map(|number| replay.probe(b"f", number));
        assert_eq!(probes, [None, Some(true), Some(false), None]);
    }
}
