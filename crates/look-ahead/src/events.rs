//! The server's side: records events without locking, allocating or waiting. A record for which
//! there is no room is dropped and counted. The only system call wakes a sleeping companion.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, fence};

use launch_profile::ImageIdentity;
use rustix::time::{ClockId, clock_gettime};
use sys::eventfd::EventFd;

use crate::shared::{
    ABSENT, AWAKE, BEGAN, CLOSED, DROPPED, FILE_AT, FILE_BYTES, FILE_LENGTH, FIRST_NAME, HEAD,
    Header, IMAGE_AT, IMAGE_BYTES, IMAGE_LENGTH, INSIDE, IS_INSIDE, LINK_READ, LISTED,
    LONGEST_NAME, LOOKED_UP, MORE_NAME, MOST_PARTS, MOST_THREADS, NOT_INSIDE, PART, PARTS,
    PARTS_AT, READ, RECORDS, REPORT_AT, REPORT_BYTES, REPORT_LENGTH, REPORT_VERSION, ROOT, SLEEPS,
    SLOT, SLOTS, Shared, TAIL, THREADS, UNTIL_ANY, WAITS, WANTED, slots_of, word_of,
};

/// What is known about an inode that a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inode {
    /// The inode number as seen by programs.
    pub ino: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Size in bytes.
    pub size: u64,
}

/// The events in a mount, recorded for its companion.
#[derive(Debug)]
pub struct Events {
    shared: Shared,
    wake: EventFd,
}

impl Events {
    /// Creates a file for [`map`](Self::map), which must be kept for later servers and companions.
    ///
    /// # Errors
    /// There is no memory or no file descriptor left.
    pub fn create() -> io::Result<OwnedFd> {
        Shared::create()
    }

    /// Maps the file from [`create`](Self::create). `wake` is an eventfd.
    ///
    /// # Errors
    /// The kernel refuses to map the file, or the file is not one from [`create`](Self::create).
    pub fn map(file: BorrowedFd<'_>, wake: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            shared: Shared::map(file)?,
            wake: wake.into(),
        })
    }

    /// Call this before the mount is served: sets the inode number of its root, the name of the
    /// file with its learned launches, and the identity of its image.
    pub fn describe(&self, root: u64, file: &str, image: &ImageIdentity) {
        self.shared.set(ROOT, root);
        let set = |length: usize, at: usize, text: &str, most: usize| {
            let text = &text.as_bytes()[..text.len().min(most)];
            self.shared.set_bytes(at, text);
            self.shared.set(length, text.len() as u64);
        };
        set(FILE_LENGTH, FILE_AT, file, FILE_BYTES);
        set(IMAGE_LENGTH, IMAGE_AT, &image.to_text(), IMAGE_BYTES);
    }

    /// Sets whether the mount has a profile in its root directory, if that is known.
    pub fn set_inside(&self, inside: Option<bool>) {
        let word = match inside {
            None => 0,
            Some(false) => NOT_INSIDE,
            Some(true) => IS_INSIDE,
        };
        self.shared.set(INSIDE, word);
    }

    /// Records all requests from now on, until the companion has seen enough. Used when reading any
    /// file begins a launch.
    pub fn record(&self) {
        self.shared.set(RECORDS, 1);
    }

    /// Whether a launch is in progress, so that requests are recorded.
    pub fn records(&self) -> bool {
        self.shared.get(RECORDS) != 0
    }

    /// Whether a thread belongs to the companion: its requests are not part of a launch.
    pub fn is_of_companion(&self, thread: u32) -> bool {
        let mut threads = THREADS..THREADS + MOST_THREADS;
        thread != 0 && threads.any(|at| self.shared.get(at) == u64::from(thread))
    }

    /// Records that a name was looked up in a directory.
    pub fn looked_up(&self, directory: u64, name: &[u8], found: Option<Inode>) {
        let (kind, ino, last) = match found {
            Some(found) => {
                let size = found.size & u64::MAX >> 16;
                (LOOKED_UP, found.ino, u64::from(found.mode) << 48 | size)
            }
            None => (ABSENT, 0, 0),
        };
        self.add(kind, [directory, ino, last], name);
    }

    /// Records that a directory was listed.
    pub fn listed(&self, directory: u64) {
        self.add(LISTED, [directory, 0, 0], b"");
    }

    /// Notes that a symbolic link was read.
    pub fn read_link(&self, ino: u64) {
        self.add(LINK_READ, [ino, 0, 0], b"");
    }

    /// Records that a program was read from its beginning, so that a launch begins.
    pub fn began(&self, ino: u64) {
        if self.shared.get(RECORDS) == 0 {
            self.shared.set(RECORDS, 1);
        }
        self.add(BEGAN, [ino, 0, 0], b"");
    }

    /// Records that a file was read, while a launch is in progress.
    pub fn read(&self, ino: u64, offset: u64, length: usize) {
        if self.shared.get(RECORDS) != 0 {
            self.add(READ, [ino, offset, length as u64], b"");
        }
    }

    /// Notes that a reader waits for the network: this time counts neither as part of the launch
    /// nor as the quiet time that ends it.
    pub fn waits(&self) {
        if self.shared.get(RECORDS) != 0 {
            self.add(WAITS, [0; 3], b"");
        }
    }

    /// Asks the companion to list a directory. Returns a mark for [`has_read`](Self::has_read) if
    /// the companion will do so.
    pub fn wants(&self, path: &[u8]) -> Option<u64> {
        self.add(WANTED, [0; 3], path)
    }

    /// Whether the companion has read past a mark.
    pub fn has_read(&self, mark: u64) -> bool {
        self.shared.get(TAIL) >= mark
    }

    /// The parts of files that the companion is about to read, starting with the one after `seen`:
    /// an inode number, first byte and length. The companion may have written arbitrary values.
    /// Advances `seen` past them.
    pub fn parts(&self, seen: &mut u64) -> Vec<(u64, u64, u64)> {
        let count = self.shared.word(PARTS).load(Ordering::Acquire);
        let first = count.saturating_sub(MOST_PARTS).max((*seen).min(count));
        *seen = count;
        let part = |number: u64| {
            let at = PARTS_AT + (number % MOST_PARTS) as usize * PART;
            let [ino, offset, length] = [at, at + 1, at + 2].map(|at| self.shared.get(at));
            (ino, offset, length)
        };
        (first..count).map(part).collect()
    }

    /// The companion's figures as JSON, if there are any.
    pub fn report(&self) -> Option<serde_json::Value> {
        /// Number of attempts while the companion is writing, which takes a few microseconds.
        const TRIES: usize = 100;
        for _ in 0..TRIES {
            let before = self.shared.word(REPORT_VERSION).load(Ordering::Acquire);
            let length = self.shared.get(REPORT_LENGTH);
            let bytes = self.shared.bytes(REPORT_AT, length, REPORT_BYTES);
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.shared.get(REPORT_VERSION) == before {
                let report: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
                return report.is_object().then_some(report);
            }
            std::thread::yield_now();
        }
        None
    }

    /// The number of records dropped for lack of room.
    pub fn dropped(&self) -> u64 {
        self.shared.get(DROPPED)
    }

    /// Adds a record, whose name may be empty. Returns the position after the record, unless it was
    /// dropped.
    fn add(&self, kind: u8, numbers: [u64; 3], name: &[u8]) -> Option<u64> {
        if self.shared.get(CLOSED) != 0 || name.len() > LONGEST_NAME {
            return None;
        }
        let slots = slots_of(name.len());
        let Some(slot) = self.reserve(slots as u64) else {
            self.shared.word(DROPPED).fetch_add(1, Ordering::Relaxed);
            self.wake_for(true);
            return None;
        };
        let header = Header {
            kind,
            slots: slots as u8,
            name: name.len() as u16,
        };
        self.write(slot, header, numbers, name);
        self.wake_for(matches!(kind, BEGAN | WANTED));
        Some(slot + slots as u64)
    }

    fn reserve(&self, slots: u64) -> Option<u64> {
        let head = self.shared.word(HEAD);
        let reserved = head.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |head| {
            let used = head.wrapping_sub(self.shared.word(TAIL).load(Ordering::Acquire));
            (used.saturating_add(slots) <= SLOTS).then(|| head.wrapping_add(slots))
        });
        reserved.ok()
    }

    fn write(&self, slot: u64, header: Header, numbers: [u64; 3], name: &[u8]) {
        let word = |at: usize, value: u64| {
            let place = self.shared.slot(slot + (at / SLOT) as u64, at % SLOT);
            place.store(value, Ordering::Relaxed);
        };
        word(1, now_ms());
        for (at, number) in (2..).zip(numbers) {
            word(at, number);
        }
        let (first, more) = name.split_at(name.len().min(FIRST_NAME));
        for (at, chunk) in (5..).zip(first.chunks(8)) {
            word(at, word_of(chunk));
        }
        for (at, chunk) in (SLOT..).zip(more.chunks(8)) {
            word(at, word_of(chunk));
        }
        let place = self.shared.slot(slot, 0);
        place.store(header.at(slot), Ordering::Release);
    }

    fn wake_for(&self, urgent: bool) {
        // Either the companion sees the record before it sleeps, or this thread sees that the
        // companion sleeps.
        fence(Ordering::SeqCst);
        let sleeps = self.shared.get(SLEEPS);
        let is_owed = || {
            let used = self.shared.get(HEAD).wrapping_sub(self.shared.get(TAIL));
            urgent || sleeps == UNTIL_ANY || used >= SLOTS / 2
        };
        let slept = sleeps != AWAKE && is_owed();
        if slept && self.shared.word(SLEEPS).swap(AWAKE, Ordering::Relaxed) != AWAKE {
            self.wake.wake();
        }
    }
}

const _: () = assert!(FIRST_NAME + 8 * MORE_NAME >= LONGEST_NAME);

/// Milliseconds on the clock that both processes read, as of the kernel's last tick.
pub(crate) fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec.cast_unsigned() * 1000 + now.tv_nsec.cast_unsigned() / 1_000_000
}
