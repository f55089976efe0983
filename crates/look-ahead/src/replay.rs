//! Replays a launch profile as a client of the mount: the kernel has names and pages before the
//! launch asks for them.
//!
//! Steps are taken in their order by a few threads. If a reader is faster, the replay skips its
//! window and continues behind it. A program that uses what is there sends no request, so the use
//! is invisible. Therefore some windows, the probes, are left out: a request for one shows that the
//! launch still follows the profile.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use launch_profile::{PAGE, PAGES_PER_WINDOW, Profile, Step, Window};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::client::{self, Room};
use crate::reader::Registrar;
use crate::surroundings::Mount;

/// One window in this many is a probe, except for the first ones.
const PROBE_EVERY: usize = 32;

/// A reader up to this many steps ahead has overtaken the replay; one farther away is unrelated.
const OVERTAKING: usize = 64;

/// Bytes between two parts of a window that are read along: a request costs more.
const GAP: u64 = 16 * PAGE;

pub(crate) const WINDOW_BYTES: u64 = PAGES_PER_WINDOW as u64 * PAGE;

/// State of a window.
const PENDING: u8 = 0;
const TAKEN: u8 = 1;
const LATE: u8 = 2;
const PROBE: u8 = 3;
const PROBE_HIT: u8 = 4;

/// The replay of one profile.
#[derive(Debug)]
pub(crate) struct Replay {
    items: Vec<Item>,
    files: Vec<File>,
    /// Set at start: places of files by their paths.
    by_path: HashMap<Vec<u8>, usize>,
    /// Set at start: places of the windows of files.
    places: HashMap<(usize, u32), usize>,
    next: AtomicUsize,
    /// Set at start: bytes that may be read ahead, a part of the memory that was free.
    budget: u64,
    stopped: AtomicBool,
    /// Threads that have not ended.
    running: AtomicUsize,
    prefetched: AtomicU64,
    late: AtomicU64,
    refused: AtomicU64,
    listed: AtomicU64,
}

#[derive(Debug)]
struct Item {
    work: Work,
    /// Of a window.
    state: AtomicU8,
}

#[derive(Debug)]
enum Work {
    List(Vec<u8>),
    LookUp(Vec<u8>),
    /// Of a file that is left to the launch.
    Find(usize),
    Read(usize, Window),
}

#[derive(Debug)]
struct File {
    path: Vec<u8>,
    /// Bytes when it was recorded.
    size: u64,
    /// Atomic: its inode number, once it was found.
    ino: AtomicU64,
    /// Atomic: the server knows what will be read of it.
    is_told: AtomicBool,
}

impl Replay {
    /// The first page of `program` is left to its launch, which shows by it that it begins.
    pub(crate) fn new(profile: &Profile, program: &[u8], budget: u64, threads: usize) -> Self {
        let files: Vec<File> = profile
            .files
            .iter()
            .map(|file| File {
                path: profile.path(&file.name),
                size: file.size,
                ino: AtomicU64::new(0),
                is_told: AtomicBool::new(false),
            })
            .collect();
        let by_path = files.iter().enumerate();
        let by_path = by_path
            .map(|(place, file)| (file.path.clone(), place))
            .collect();
        let mut this = Self {
            items: Vec::new(),
            files,
            by_path,
            places: HashMap::new(),
            next: AtomicUsize::new(0),
            budget,
            stopped: AtomicBool::new(false),
            running: AtomicUsize::new(threads),
            prefetched: AtomicU64::new(0),
            late: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            listed: AtomicU64::new(0),
        };
        this.add(Work::List(Vec::new()), PENDING);
        let mut windows = 0_usize;
        for step in profile.steps() {
            match step {
                Step::List(directory, _) => {
                    let path = profile.directory_path(Some(directory));
                    this.add(Work::List(path), PENDING);
                }
                Step::LookUp(name) => this.add(Work::LookUp(profile.path(&name.name)), PENDING),
                Step::Read(window) => {
                    let file = window.file as usize;
                    let mut window = *window;
                    if window.number == 0 && this.files[file].path == program {
                        window.pages &= !1;
                    }
                    // A hostile profile may name one window twice.
                    let Entry::Vacant(place) = this.places.entry((file, window.number)) else {
                        continue;
                    };
                    if window.pages == 0 {
                        this.add(Work::Find(file), PENDING);
                        continue;
                    }
                    windows += 1;
                    place.insert(this.items.len());
                    let is_probe = usize::is_multiple_of(windows, PROBE_EVERY);
                    let state = if is_probe { PROBE } else { PENDING };
                    this.add(Work::Read(file, window), state);
                }
            }
        }
        this
    }

    fn add(&mut self, work: Work, state: u8) {
        let state = AtomicU8::new(state);
        self.items.push(Item { work, state });
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed) > 0
    }

    /// One of its threads could not start: the others do its work.
    pub(crate) fn did_not_start(&self) {
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    /// A reader requested bytes of a file: windows of them not read yet are not needed any more.
    pub(crate) fn was_read(&self, file: usize, offset: u64, length: u64) {
        let window = |at: u64| u32::try_from(at / WINDOW_BYTES).ok();
        let last = offset.saturating_add(length.saturating_sub(1));
        let Some((first, last)) = window(offset).zip(window(last)) else {
            return;
        };
        // No more than the kernel asks for at a time.
        for number in (first..=last).take(4096) {
            if let Some(&place) = self.places.get(&(file, number)) {
                self.window_was_read(place);
            }
        }
    }

    fn window_was_read(&self, place: usize) {
        let item = &self.items[place];
        let Work::Read(_, window) = &item.work else {
            return;
        };
        if item.change(PENDING, LATE) {
            self.late.fetch_add(window.bytes(), Ordering::Relaxed);
            let next = self.next.load(Ordering::Relaxed);
            if place >= next && place - next < OVERTAKING {
                self.next.fetch_max(place + 1, Ordering::Relaxed);
            }
        }
        item.change(PROBE, PROBE_HIT);
    }

    /// The place of a file, by its inode number or its path.
    pub(crate) fn file(&self, ino: u64, path: Option<&[u8]>) -> Option<usize> {
        let is_it = |file: &File| file.ino.load(Ordering::Relaxed) == ino;
        let by_path = || self.by_path.get(path?).copied();
        by_path().or_else(|| self.files.iter().position(is_it).filter(|_| ino != 0))
    }

    /// Path and bytes of a file.
    pub(crate) fn describe(&self, file: usize) -> (&[u8], u64) {
        let file = &self.files[file];
        (&file.path, file.size)
    }

    /// Directories that were listed, or will be.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &[u8]> {
        self.items.iter().filter_map(|item| match &item.work {
            Work::List(path) => Some(&path[..]),
            _ => None,
        })
    }

    /// One of the threads of the replay, to its end, or to that of the mount.
    pub(crate) fn run(&self, mount: &dyn Mount, tells: &Registrar) {
        let (mut room, mut open) = (Room::new(), None);
        while !self.stopped.load(Ordering::Relaxed)
            && self.prefetched.load(Ordering::Relaxed) < self.budget
            && let place = self.next.fetch_add(1, Ordering::Relaxed)
            && let Some(item) = self.items.get(place)
            && let Some(root) = mount.root()
        {
            match &item.work {
                // What cannot be found is met again by the launch.
                Work::List(path) => {
                    let listed = client::list(&root, path, &mut room, |_, _| !self.is_stopped());
                    self.listed
                        .fetch_add(listed.is_ok().into(), Ordering::Relaxed);
                }
                Work::LookUp(path) => drop(client::look_up(&root, path)),
                Work::Read(file, window) if item.change(PENDING, TAKEN) => {
                    let read = self.read(*file, window, &root, &mut open, tells);
                    let counted = match read {
                        Ok(bytes) => self.prefetched.fetch_add(bytes, Ordering::Relaxed),
                        Err(_) => self.refused.fetch_add(1, Ordering::Relaxed),
                    };
                    let _ = counted;
                }
                // Its name is looked up, and by its number the launch's request is recognized.
                Work::Find(file) | Work::Read(file, _) => {
                    let file = &self.files[*file];
                    if let Ok(inode) = client::status(&root, &file.path) {
                        file.ino.store(inode.ino, Ordering::Relaxed);
                    }
                }
            }
        }
        self.running.fetch_sub(1, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Returns bytes. `open`: the file of the last window.
    fn read(
        &self,
        number: usize,
        window: &Window,
        root: &OwnedFd,
        open: &mut Option<(usize, OwnedFd)>,
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
        let mut bytes = 0;
        let mut next: Option<(u64, u64)> = None;
        let Some((_, opened)) = open else {
            return Err(Errno::STALE);
        };
        for (offset, length) in window.stretches() {
            let end = (offset + length).min(file.size);
            bytes += end.saturating_sub(offset);
            next = match next {
                Some((first, last)) if offset <= last + GAP => Some((first, end)),
                Some((first, last)) => {
                    client::read_ahead(opened, first, last.saturating_sub(first))?;
                    Some((offset, end))
                }
                None => Some((offset, end)),
            };
        }
        if let Some((first, last)) = next {
            client::read_ahead(opened, first, last.saturating_sub(first))?;
        }
        Ok(bytes)
    }

    /// Tells the server which parts of a file follow.
    fn tell(&self, number: usize, ino: u64, tells: &Registrar) {
        let windows = self.items.iter().filter_map(|item| match &item.work {
            Work::Read(file, window) if *file == number => Some(window),
            _ => None,
        });
        let size = self.files[number].size;
        for (offset, length) in windows.flat_map(Window::stretches) {
            tells.will_read(ino, offset, length.min(size.saturating_sub(offset)));
        }
    }

    /// What is known of a window of a file: whether the launch used it. `None` if it is no probe.
    pub(crate) fn probe(&self, path: &[u8], number: u32) -> Option<bool> {
        match self.state(path, number)? {
            PROBE => Some(false),
            PROBE_HIT => Some(true),
            _ => None,
        }
    }

    /// Whether it reads a window of a file ahead, or has.
    pub(crate) fn has_taken(&self, path: &[u8], number: u32) -> bool {
        self.state(path, number) == Some(TAKEN)
    }

    fn state(&self, path: &[u8], number: u32) -> Option<u8> {
        let file = *self.by_path.get(path)?;
        let item = &self.items[*self.places.get(&(file, number))?];
        Some(item.state.load(Ordering::Relaxed))
    }

    /// Its windows.
    pub(crate) fn windows(&self) -> impl Iterator<Item = (&[u8], u32)> {
        self.items.iter().filter_map(|item| match &item.work {
            Work::Read(file, window) => Some((&self.files[*file].path[..], window.number)),
            _ => None,
        })
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

impl Item {
    fn change(&self, from: u8, to: u8) -> bool {
        let order = Ordering::Relaxed;
        self.state.compare_exchange(from, to, order, order).is_ok()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use launch_profile::text::Builder;

    /// With a window of each of these numbers, of the file `f`.
    pub(crate) fn replay_of(program: &str, numbers: impl Iterator<Item = u32>) -> Replay {
        let mut builder = Builder::default();
        let file = builder.file(1 << 40, b"f").unwrap();
        numbers.for_each(|number| builder.read(0, file, number, 0b11).unwrap());
        Replay::new(&builder.finish(), program.as_bytes(), 0, 0)
    }

    /// As if it had read so many bytes ahead.
    pub(crate) fn count(replay: &Replay, bytes: u64) {
        replay.prefetched.store(bytes, Ordering::Relaxed);
    }

    /// As if it had read all windows ahead.
    pub(crate) fn take_all(replay: &Replay) {
        for item in &replay.items {
            item.state.store(TAKEN, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_first_page_of_a_program_is_left_to_its_launch() {
        let replay = replay_of("f", [0, 1, 0].into_iter());
        let pages = replay.items.iter().filter_map(|item| match &item.work {
            Work::Read(_, window) => Some(window.pages),
            _ => None,
        });
        assert_eq!(pages.collect::<Vec<_>>(), [0b10, 0b11]);
    }

    #[test]
    fn a_reader_that_overtakes_takes_the_replay_along() {
        let replay = replay_of("p", 0..100);
        let read = |window: u64, windows: u64| {
            let file = replay.file(0, Some(b"f")).unwrap();
            replay.was_read(file, window * WINDOW_BYTES, windows * WINDOW_BYTES);
        };
        read(5, 2);
        // Behind the root's listing.
        assert_eq!(replay.next.load(Ordering::Relaxed), 8);
        assert_eq!(replay.report()["late_bytes"], 4 * PAGE);
        // Another reader, far away.
        read(90, 1);
        assert_eq!(replay.next.load(Ordering::Relaxed), 8);
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
