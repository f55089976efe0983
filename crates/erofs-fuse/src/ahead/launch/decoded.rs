//! Keeps what launches decode, so that later mounts need not decode it again.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use erofs_engine::{DecodedSink, DecodedSource, Engine};
use launch_profile::{Decoded, DecodedIndex, Program};
use sys::pi_mutex::PiMutex;

use super::names;
use super::progress::Launch;
use crate::error::Error;
use crate::protocol::Companion;

/// It is written again if launches decoded one byte in this many themselves, or more.
const NEW_SHARE: u64 = 20;

/// The same of a file that is full: others would go for it.
const NEW_SHARE_OF_FULL: u64 = 2;

/// The nice value that gives way to all others.
const LEAST: i32 = 19;

/// What one mount keeps.
#[derive(Debug)]
pub(crate) struct DecodedBytes {
    /// That of earlier mounts, until it is needed.
    unread: Option<File>,
    /// Most bytes that are kept.
    most: u64,
    /// That of earlier mounts.
    before: Option<Arc<Decoded>>,
    keeping: Option<JoinHandle<()>>,
    /// Bytes of the profiles for which this mount wrote it last.
    written_for: u64,
}

/// For the engine.
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
    /// `file`: what earlier mounts kept. It must be open before the threads that store begin: they
    /// have descriptors of their own.
    pub(crate) fn new(file: Option<File>, most: u64) -> Self {
        Self {
            unread: file,
            most,
            before: None,
            keeping: None,
            written_for: 0,
        }
    }

    /// Has the engine take what earlier mounts kept, from the first call on. What is damaged is
    /// written again.
    pub(super) fn use_in(&mut self, engine: &Engine, launch: &Launch) {
        let decoded = self.unread.take().and_then(|file| Decoded::open(file).ok());
        if let Some(decoded) = decoded.map(Arc::new) {
            engine.set_decoded(Arc::new(Taken(Arc::clone(&decoded))));
            launch.set_decoded(Arc::clone(&decoded));
            self.before = Some(decoded);
        }
    }

    /// Has a thread of its own keep what these programs decode, behind everything else: it takes a
    /// while. The next one waits for it.
    pub(super) fn keep(
        &mut self,
        programs: Vec<Program>,
        engine: Weak<Engine>,
        companion: &Arc<Companion>,
        launch: &Arc<Launch>,
    ) {
        if !self.is_due(&programs) {
            return;
        }
        self.end();
        let (companion, launch) = (Arc::clone(companion), Arc::clone(launch));
        let seed = self.before.as_ref().map(|before| before.seed);
        let sink = Sink {
            seed: seed.unwrap_or_else(|| RandomState::new().hash_one(())),
            companion,
            state: PiMutex::new(State {
                index: DecodedIndex::default(),
                kept: HashMap::new(),
                left: self.most,
                failed: None,
            }),
        };
        let work = move || {
            // Without it, this takes the time of others.
            let _ = rustix::process::nice(LEAST);
            let Some(engine) = engine.upgrade() else {
                return;
            };
            if let Err(error) = sink.keep_all(&programs, &engine) {
                launch.fail(error.to_string());
            }
        };
        let thread = thread::Builder::new().name("erofs_decoded".to_owned());
        self.keeping = thread.spawn(work).ok();
    }

    /// Whether launches lack some of it, and more than this mount has written.
    fn is_due(&mut self, programs: &[Program]) -> bool {
        let of_programs = programs.iter().map(|program| program.profile.bytes());
        let bytes: u64 = of_programs.sum();
        let before = self.before.as_ref();
        let due = before.is_none_or(|before| !has_most(before, self.most))
            && bytes > self.written_for + self.written_for / NEW_SHARE;
        if due {
            self.written_for = bytes;
        }
        due
    }

    /// A panic was printed, and leaves what there was before.
    fn end(&mut self) {
        self.keeping.take().map(JoinHandle::join);
    }
}

impl Drop for DecodedBytes {
    fn drop(&mut self) {
        self.end();
    }
}

/// Whether launches found nearly all that they decoded, or what of it has room.
fn has_most(before: &Decoded, most: u64) -> bool {
    let (read, missed) = before.bytes();
    let is_full = before.length >= most - most / NEW_SHARE;
    let share = if is_full {
        NEW_SHARE_OF_FULL
    } else {
        NEW_SHARE
    };
    !before.is_damaged() && missed * share <= read + missed
}

/// Writes a file through the companion.
#[derive(Debug)]
struct Sink {
    seed: u64,
    companion: Arc<Companion>,
    /// Guarded by its own lock: one thread decodes.
    state: PiMutex<State>,
}

#[derive(Debug)]
struct State {
    index: DecodedIndex,
    /// Lengths by keys.
    kept: HashMap<u128, usize>,
    /// Bytes that may still be kept.
    left: u64,
    failed: Option<Error>,
}

impl DecodedSink for Sink {
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
            state.failed = self.companion.add_decoded(decoded).err();
        }
    }
}

impl Sink {
    /// Decodes what the programs read once more. What cannot be read any more, since the mount
    /// ends, is left out.
    fn keep_all(self, programs: &[Program], engine: &Engine) -> Result<(), Error> {
        for (file, range) in programs.iter().flat_map(|one| one.profile.ranges()) {
            if let Ok(inode) = engine.inode(file.nid)
                && inode.size == file.size
            {
                let _ = engine.decode_for(&inode, range, &self);
            }
        }
        let state = self.state.into_inner();
        if let Some(error) = state.failed {
            return Err(error);
        }
        let image = names::identity(engine);
        self.companion
            .add_decoded(&state.index.into_bytes(self.seed, image))?;
        self.companion.commit_decoded()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use launch_profile::{ImageIdentity, Name, Profile, RecordedFile, Trim, Window};

    use super::*;

    #[test]
    fn a_mount_writes_again_when_launches_read_more() {
        let program = |pages| {
            let window = Window {
                file: 0,
                number: 0,
                pages,
                at_ms: 0,
            };
            let file = RecordedFile {
                name: Name {
                    directory: None,
                    name: b"a".to_vec(),
                },
                nid: 7,
                size: 1 << 20,
            };
            let profile = Profile {
                files: vec![file],
                windows: vec![window],
                ..Profile::default()
            };
            Program {
                nid: 7,
                launches: 1,
                idle_mounts: 0,
                trim: Trim::default(),
                profile,
            }
        };
        let mut decoded = DecodedBytes::new(None, 1 << 20);
        assert!(decoded.is_due(&[program(0b11)]));
        assert!(!decoded.is_due(&[program(0b11)]), "each launch of a mount");
        assert!(decoded.is_due(&[program(0b111), program(0b1)]));
        assert!(!decoded.is_due(&[program(0b111)]));
    }

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
