//! The layout of the memory that a server and its companion share.
//!
//! The ring has slots of eight words. A record takes one or more slots and consists of a header,
//! the time, three numbers, and a name. Its header is written last; it contains the slot's
//! position, counted over all laps, which shows that the record is complete.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use sys::shared_words::SharedWords;

/// Words in a slot: a cache line.
pub(crate) const SLOT: usize = 8;

/// Slots in the ring, 128 KiB: a launch makes about 700 records.
pub(crate) const SLOTS: u64 = 2048;

/// Bytes of a name that fit in the first slot of a record.
pub(crate) const FIRST_NAME: usize = 3 * 8;

/// Bytes of a name that fit in each further slot.
pub(crate) const MORE_NAME: usize = SLOT * 8;

/// Bytes of the longest name or path in a record.
pub(crate) const LONGEST_NAME: usize = 512;

/// The number of slots reserved so far. Written by the server.
pub(crate) const HEAD: usize = 0;
/// The number of slots read so far. Written by the companion.
pub(crate) const TAIL: usize = 8;
/// Whether the companion sleeps, and the kind of records that wake it: one of the values below.
pub(crate) const SLEEPS: usize = 16;
/// The number of records for which there was no room.
pub(crate) const DROPPED: usize = 17;
/// Not 0 if no companion will come. The words from here on are read at each request, and seldom
/// written.
pub(crate) const CLOSED: usize = 24;
/// Not 0 while a launch is in progress and all requests are recorded.
pub(crate) const RECORDS: usize = 25;
/// Inode number of the mount's root.
pub(crate) const ROOT: usize = 32;
/// Name of the file with learned launches: its length in bytes, and its position.
pub(crate) const FILE_LENGTH: usize = 33;
pub(crate) const FILE_AT: usize = 40;
pub(crate) const FILE_BYTES: usize = 128;
/// IDs of the companion's threads, in one cache line. 0 marks an empty place.
pub(crate) const THREADS: usize = 56;
pub(crate) const MOST_THREADS: usize = 8;
/// Figures of the companion: a version, odd while they are written, their length in bytes, and
/// their position.
pub(crate) const REPORT_VERSION: usize = 34;
pub(crate) const REPORT_LENGTH: usize = 35;
/// The image, as a line of [`launch_profile::ImageIdentity`].
pub(crate) const IMAGE_LENGTH: usize = 36;
pub(crate) const IMAGE_AT: usize = 64;
pub(crate) const IMAGE_BYTES: usize = 256;
pub(crate) const REPORT_AT: usize = 128;
pub(crate) const REPORT_BYTES: usize = 16 << 10;
/// Parts of files that a replay is about to read: the number of parts so far, and the latest parts,
/// each as an inode number, the first byte, and the length in bytes.
pub(crate) const PARTS: usize = 37;
pub(crate) const PARTS_AT: usize = REPORT_AT + REPORT_BYTES / 8;
pub(crate) const PART: usize = 3;
pub(crate) const MOST_PARTS: u64 = 1024;
/// Whether the mount has a profile in its root directory, according to its server; 0 if that is not
/// known.
pub(crate) const INSIDE: usize = 38;
pub(crate) const NOT_INSIDE: u64 = 1;
pub(crate) const IS_INSIDE: u64 = 2;
/// How often the mount helper received a profile that travels with the image.
pub(crate) const ARRIVALS: usize = 39;
const RING_AT: usize = PARTS_AT + MOST_PARTS as usize * PART;
const WORDS: usize = RING_AT + SLOTS as usize * SLOT;

/// Values of [`SLEEPS`], in this order: the companion is awake; it sleeps until a record is urgent
/// or the ring is half full; it sleeps until there is any record.
pub(crate) const AWAKE: u64 = 0;
pub(crate) const UNTIL_URGENT: u64 = 1;
pub(crate) const UNTIL_ANY: u64 = 2;

/// Kinds of records.
pub(crate) const LOOKED_UP: u8 = 1;
pub(crate) const ABSENT: u8 = 2;
pub(crate) const LISTED: u8 = 3;
pub(crate) const LINK_READ: u8 = 4;
pub(crate) const READ: u8 = 5;
pub(crate) const BEGAN: u8 = 6;
pub(crate) const WAITS: u8 = 7;
pub(crate) const WANTED: u8 = 8;

/// The header of a record: its slot, its kind, the number of slots, and the length of its name in
/// bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Header {
    pub(crate) kind: u8,
    pub(crate) slots: u8,
    pub(crate) name: u16,
}

impl Header {
    pub(crate) fn at(self, slot: u64) -> u64 {
        let kind_and_slots = u64::from(self.kind) << 24 | u64::from(self.slots) << 16;
        mark(slot) | kind_and_slots | u64::from(self.name)
    }

    /// Returns `None` if the record of this slot is not complete.
    pub(crate) fn of(word: u64, slot: u64) -> Option<Self> {
        (word & !u64::from(u32::MAX) == mark(slot)).then_some(Self {
            kind: (word >> 24) as u8,
            slots: (word >> 16) as u8,
            name: word as u16,
        })
    }
}

/// The mark of a slot: differs from 0, the value in a slot never used, for the first 4 billion
/// slots.
fn mark(slot: u64) -> u64 {
    slot.wrapping_add(1) << 32
}

/// Number of slots in a record whose name has this many bytes.
pub(crate) fn slots_of(name: usize) -> usize {
    1 + name.saturating_sub(FIRST_NAME).div_ceil(MORE_NAME)
}

#[derive(Debug)]
pub(crate) struct Shared(SharedWords<WORDS>);

impl Shared {
    pub(crate) fn create() -> io::Result<OwnedFd> {
        SharedWords::<WORDS>::create()
    }

    pub(crate) fn map(file: BorrowedFd<'_>) -> io::Result<Self> {
        SharedWords::map(file).map(Self)
    }

    pub(crate) fn word(&self, at: usize) -> &AtomicU64 {
        &self.0.words()[at]
    }

    pub(crate) fn get(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, at: usize, value: u64) {
        self.word(at).store(value, Ordering::Relaxed);
    }

    /// A word of a slot; slots are counted over all laps.
    pub(crate) fn slot(&self, slot: u64, word: usize) -> &AtomicU64 {
        let place = (slot % SLOTS) as usize;
        self.word(RING_AT + place * SLOT + word)
    }

    pub(crate) fn set_bytes(&self, at: usize, bytes: &[u8]) {
        for (place, chunk) in bytes.chunks(8).enumerate() {
            self.set(at + place, word_of(chunk));
        }
    }

    /// Reads at most `most` bytes: `length` comes from another process and is not trusted.
    pub(crate) fn bytes(&self, at: usize, length: u64, most: usize) -> Vec<u8> {
        let length = usize::try_from(length).unwrap_or(most).min(most);
        let words = (0..length.div_ceil(8)).map(|place| self.get(at + place));
        let mut bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        bytes.truncate(length);
        bytes
    }
}

/// Packs up to eight bytes.
pub(crate) fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
