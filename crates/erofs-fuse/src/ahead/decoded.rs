//! Keeps the decoded bytes of launches, so that later mounts need not repeat the decoding.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use erofs_engine::erofs_format::Nid;
use erofs_engine::{DecodedSink, DecodedSource, Engine};
use launch_profile::{Decoded, DecodedIndex};
use sys::pi_condvar::PiCondvar;
use sys::pi_mutex::PiMutex;

use super::image_identity::identity;
use crate::error::Error;
use crate::protocol::DecodedWriter;

/// The file of decoded bytes is rewritten if launches had to decode at least one in this many of
/// the bytes that they read.
const NEW_SHARE: u64 = 20;

/// Like [`NEW_SHARE`], but for a file that has reached its limit, so that new bytes would replace
/// older ones.
const NEW_SHARE_OF_FULL: u64 = 2;

/// The lowest priority, as a nice value.
const LEAST: i32 = 19;

/// Maximum number of reads by launches that are remembered.
const MOST_READS: usize = 1 << 16;

/// For the purpose of keeping decoded bytes, a launch is over after this time without a read.
const QUIET: Duration = Duration::from_secs(3);

/// How often to check whether a launch is over.
const LOOK: Duration = Duration::from_millis(500);

/// Maximum number of times that one mount writes the file of decoded bytes.
const MOST_WRITES: usize = 8;

/// The decoded bytes that one mount keeps.
#[derive(Debug)]
pub(crate) struct DecodedBytes {
    /// Limit of the bytes that are kept.
    most: u64,
    /// The bytes of earlier mounts.
    before: Option<Arc<Decoded>>,
    /// Guarded by its own lock: the reads of launches.
    reads: PiMutex<Reads>,
    changed: PiCondvar,
}

#[derive(Debug, Default)]
struct Reads {
    ranges: Vec<(Nid, Range<u64>)>,
    /// Number of reads when the thread last checked whether a launch is over.
    seen: usize,
    /// Number of reads whose decoded bytes have been kept.
    kept: usize,
    /// Whether the mount is ending.
    closed: bool,
}

/// Lends kept bytes to the engine.
#[derive(Debug)]
struct Taken(Arc<Decoded>);

impl DecodedSource for Taken {
    fn seed(&self) -> u64 {
        self.0.seed
    }

    fn read(&self, key: u128, out: &mut [u8], keeps: bool) -> bool {
        self.0.read(key, out, !keeps)
    }
}

impl DecodedBytes {
    /// Makes the engine use the bytes that earlier mounts kept in `file`. A damaged file counts as
    /// missing.
    pub(crate) fn new(file: Option<File>, most: u64, engine: &Engine) -> Self {
        let before = file.and_then(|file| Decoded::open(file).ok()).map(Arc::new);
        if let Some(before) = &before {
            engine.set_decoded(Arc::new(Taken(Arc::clone(before))));
        }
        Self {
            most,
            before,
            reads: PiMutex::default(),
            changed: PiCondvar::new(),
        }
    }

    /// Number of bytes from earlier launches that this mount has used.
    pub(crate) fn taken_bytes(&self) -> u64 {
        self.before.as_ref().map_or(0, |before| before.bytes().0)
    }

    /// Records that a part of a file was read, by a launch or by the companion ahead of it.
    pub(crate) fn was_read(&self, file: Nid, offset: u64, length: usize) {
        let mut reads = self.reads.lock();
        if reads.ranges.len() < MOST_READS {
            let end = offset.saturating_add(length as u64);
            reads.ranges.push((file, offset..end));
        }
    }

    /// Starts the thread that keeps the decoded bytes of launches.
    pub(crate) fn start(
        self: &Arc<Self>,
        engine: &Arc<Engine>,
        writer: DecodedWriter,
    ) -> Result<Keeping, Error> {
        let (this, engine) = (Arc::clone(self), Arc::downgrade(engine));
        let thread = thread::Builder::new().name("erofs_decoded".to_owned());
        let thread = thread.spawn(move || this.run(&engine, &writer));
        Ok(Keeping {
            decoded: Arc::clone(self),
            thread: Some(thread.map_err(Error::std_io("erofs_decoded"))?),
        })
    }

    fn run(&self, engine: &Weak<Engine>, writer: &DecodedWriter) {
        // If this fails, the thread competes with others for CPU time.
        let _ = rustix::process::nice(LEAST);
        for _ in 0..MOST_WRITES {
            let ranges = self.wait_for_launch();
            let (Some(ranges), Some(engine)) = (ranges, engine.upgrade()) else {
                return;
            };
            let _ = self.keep(&ranges, &engine, writer);
        }
    }

    /// Waits until a launch is over, and returns all reads by launches so far; `None` if the mount
    /// ends without new reads.
    fn wait_for_launch(&self) -> Option<Vec<(Nid, Range<u64>)>> {
        let mut quiet = Duration::ZERO;
        let mut reads = self.reads.lock();
        loop {
            let closed = reads.closed;
            let count = reads.ranges.len();
            if count != reads.seen {
                (reads.seen, quiet) = (count, Duration::ZERO);
            }
            let is_new = count > reads.kept + reads.kept / NEW_SHARE as usize;
            if is_new && (closed || quiet >= QUIET) {
                reads.kept = count;
                return Some(reads.ranges.clone());
            }
            if closed {
                return None;
            }
            let waits = if is_new { LOOK } else { NEVER };
            reads = self.changed.wait_timeout(reads, waits);
            quiet += waits.min(LOOK);
        }
    }

    fn keep(
        &self,
        ranges: &[(Nid, Range<u64>)],
        engine: &Engine,
        writer: &DecodedWriter,
    ) -> Result<(), Error> {
        let before = self.before.as_ref();
        if before.is_some_and(|before| has_most(before, self.most)) {
            return Ok(());
        }
        let seed = before.map(|before| before.seed);
        let state = State {
            left: self.most,
            ..State::default()
        };
        let sink = Sink {
            seed: seed.unwrap_or_else(|| RandomState::new().hash_one(())),
            writer,
            state: PiMutex::new(state),
        };
        sink.keep_all(ranges, engine)
    }
}

/// A timeout so long that, in effect, the thread waits until it is woken.
const NEVER: Duration = Duration::from_secs(3600);

/// The thread that keeps decoded bytes. It ends with the mount, after keeping everything new.
#[derive(Debug)]
pub(crate) struct Keeping {
    decoded: Arc<DecodedBytes>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.decoded.reads.lock().closed = true;
        self.decoded.changed.notify_all();
        // A panic has already been printed, and leaves the previous file in place.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Whether the file held enough of the bytes that launches needed, so that it need not be
/// rewritten. `most` is the limit of the bytes that are kept.
fn has_most(before: &Decoded, most: u64) -> bool {
    let (read, missed) = before.bytes();
    let is_full = before.length >= most - most / NEW_SHARE;
    let share = match is_full {
        true => NEW_SHARE_OF_FULL,
        false => NEW_SHARE,
    };
    !before.is_damaged() && missed * share <= read + missed
}

/// Writes the file of decoded bytes, through another process.
#[derive(Debug)]
struct Sink<'w> {
    seed: u64,
    writer: &'w DecodedWriter,
    /// Guarded by its own lock, which is not contended: one thread decodes.
    state: PiMutex<State>,
}

#[derive(Debug, Default)]
struct State {
    index: DecodedIndex,
    /// Lengths of the kept bytes, by key.
    kept: HashMap<u128, usize>,
    /// Bytes that may still be kept.
    left: u64,
    failed: Option<Error>,
}

impl DecodedSink for Sink<'_> {
    fn seed(&self) -> u64 {
        self.seed
    }

    fn wants(&self, key: u128, length: usize) -> bool {
        let state = self.state.lock();
        let has_room = state.failed.is_none() && state.left >= length as u64;
        has_room && state.kept.get(&key).is_none_or(|kept| *kept < length)
    }

    fn keep(&self, key: u128, decoded: &[u8]) {
        let mut state = self.state.lock();
        let bytes = DecodedIndex::bytes_of(decoded.len());
        let Some(left) = state.left.checked_sub(bytes) else {
            return;
        };
        if state.index.add(key, decoded) {
            state.left = left;
            state.kept.insert(key, decoded.len());
            state.failed = self.writer.add(decoded).err();
        }
    }
}

impl Sink<'_> {
    /// Decodes these ranges again to keep their bytes. Ranges that can no longer be read because
    /// the mount is ending are left out.
    fn keep_all(self, ranges: &[(Nid, Range<u64>)], engine: &Engine) -> Result<(), Error> {
        for (file, range) in ranges {
            if let Ok(inode) = engine.inode(*file) {
                let end = range.end.min(inode.size);
                if range.start < end {
                    let _ = engine.decode_for(&inode, range.start..end, &self);
                }
            }
        }
        let state = self.state.into_inner();
        if let Some(error) = state.failed {
            return Err(error);
        }
        let bytes = state.index.into_bytes(self.seed, identity(engine));
        self.writer.add(&bytes)?;
        self.writer.commit()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use launch_profile::ImageIdentity;

    use super::*;

    #[test]
    fn a_full_file_stays_unless_launches_decode_most_themselves() {
        let decoded = vec![7; 100_000];
        let (mut index, mut file) = (DecodedIndex::default(), tempfile::tempfile().unwrap());
        assert!(index.add(1, &decoded));
        file.write_all(&decoded).unwrap();
        file.write_all(&index.into_bytes(0, ImageIdentity::default()))
            .unwrap();
        let before = Decoded::open(file).unwrap();
        let (large, full) = (1 << 20, before.length);
        let read = |key, bytes| before.read(key, &mut vec![0; bytes], true);
        assert!(read(1, 96_000) && !read(2, 4_000));
        assert!(has_most(&before, large));
        assert!(!read(2, 4_000));
        assert!(!has_most(&before, large) && has_most(&before, full));
        assert!(!read(2, 100_000));
        assert!(!has_most(&before, full));
    }
}
