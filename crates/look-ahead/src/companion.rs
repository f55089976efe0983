//! The companion of a mount: learns its launches, replays those that are expected, and lists
//! directories ahead of a walk.
//!
//! A launch begins when a program is read from its beginning. The programs that were launched from
//! one of the last mounts are replayed immediately; if there are none, nothing is read ahead until
//! a known program is launched.

mod knowledge;
mod launches;
mod replaying;
mod reporting;
mod searching;
mod waiting;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use launch_profile::{ImageIdentity, Learned, learned};
use serde_json::Value;

use crate::client::Room;
use crate::names::Names;
use crate::reader::Reader;
use crate::recording::Recording;
use crate::replay::{KernelReadAhead, Replay};
use crate::surroundings::{Mount, Settings, Store};
use crate::travelling::{Candidate, Known, Travelling};
use crate::turns::Turns;

/// After this many consecutive mounts without a launch, none is expected.
const IDLE_MOUNTS: u32 = 3;

/// Time to find the names of a recorded launch when it has ended or the mount is gone.
const LAST_NAMES: Duration = Duration::from_millis(300);

/// A launch in progress. Times are in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Launch {
    program: u64,
    began: u64,
    last: u64,
}

/// The companion of one mount.
pub struct Companion {
    reader: Reader,
    mount: Arc<dyn Mount>,
    store: Box<dyn Store>,
    settings: Settings,
    names: Names,
    /// The content of the profile file when it was last read; other mounts write to the file too.
    learned: Learned,
    image: ImageIdentity,
    launch: Option<Launch>,
    /// Programs launched so far during the current launch.
    begun: HashSet<Vec<u8>>,
    /// Set until the work at the beginning of a launch is done: if the launched program is already
    /// being replayed, this work waits for a pause.
    is_behind: bool,
    /// Whether there has been a launch; used with `any_file`.
    launched_once: bool,
    recording: Recording,
    replays: Vec<Arc<Replay>>,
    turns: Arc<Turns>,
    read_ahead: Arc<KernelReadAhead>,
    /// Programs whose replay has begun.
    replayed: HashSet<Vec<u8>>,
    /// The profiles that came with the image.
    travelling: Travelling,
    /// Programs whose profiles came with the image and may still turn out not to match the mount's
    /// files, with their replays.
    unproved: Vec<(Known, Arc<Replay>)>,
    /// How many profiles had been announced when the companion last requested one, and how many
    /// times it has requested one.
    arrivals: (u64, usize),
    has_looked_inside: bool,
    /// Programs that were launched from this mount, and how many windows their last launch had to
    /// request, if they were known before.
    launched: HashMap<Vec<u8>, Option<usize>>,
    trouble: Option<String>,
    /// The most recently listed directories.
    recent: VecDeque<u64>,
    /// Directories that were searched for names during the launch.
    searched: HashSet<Vec<u8>>,
    /// The paths found in the directories of `searched`, by inode number.
    entries: HashMap<u64, Vec<u8>>,
    room: Room,
    /// When the mount was last used.
    used: Instant,
    published: Value,
}

impl std::fmt::Debug for Companion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Companion").finish_non_exhaustive()
    }
}

/// Whether the file of learned launches says that a launch is expected.
pub(crate) fn is_expected_by(file: &File) -> bool {
    let mut header = [0; learned::HEADER_BYTES];
    let length = file.read_at(&mut header, 0).unwrap_or(0);
    Learned::idle_mounts_of(&header[..length]) < IDLE_MOUNTS
}

impl Companion {
    /// Creates the companion; `reader` reads the ring in which the server records events.
    pub fn new(
        reader: Reader,
        mount: Arc<dyn Mount>,
        store: Box<dyn Store>,
        mut settings: Settings,
    ) -> Self {
        let trouble = settings.trouble.take();
        let read_ahead = Arc::new(KernelReadAhead::new(settings.read_ahead.take()));
        let (names, image) = (Names::new(reader.root()), reader.image());
        Self {
            reader,
            mount,
            store,
            settings,
            names,
            learned: Learned::default(),
            image,
            launch: None,
            begun: HashSet::new(),
            is_behind: false,
            launched_once: false,
            recording: Recording::default(),
            replays: Vec::new(),
            turns: Arc::default(),
            read_ahead,
            replayed: HashSet::new(),
            travelling: Travelling::default(),
            unproved: Vec::new(),
            arrivals: (0, 0),
            has_looked_inside: false,
            launched: HashMap::new(),
            trouble,
            recent: VecDeque::new(),
            searched: HashSet::new(),
            entries: HashMap::new(),
            room: Room::new(),
            used: Instant::now(),
            published: Value::Null,
        }
    }

    /// Runs until `end` is readable.
    pub fn run(mut self, file: Option<File>, end: BorrowedFd<'_>) {
        let _registered = self.reader.register();
        if self.settings.learns {
            let known = match file {
                Some(file) => self.parse(file),
                None => Ok(Vec::new()),
            };
            match known {
                Ok(programs) => self.learned.programs = programs,
                Err(()) => self.settings.learns = false,
            }
            self.replay(is_expected);
            // Done last: slower sources must not delay replays of programs that are already known.
            self.look_inside();
        }
        loop {
            self.take_travelling();
            self.drain();
            self.end_launch(false);
            self.prove_replays();
            let pauses = self.pauses();
            self.turns.hold(self.launch.is_some() && !pauses);
            if pauses {
                self.catch_up();
                self.find_some_names();
            }
            self.publish();
            if self.rest(end) {
                break;
            }
        }
        self.drain();
        self.end_launch(true);
        self.count_idle_mount();
        self.turns.stop();
        self.publish();
    }

    /// Reports a fault in a profile that came with the image. Such a fault does not prevent
    /// learning.
    fn complain(&mut self, line: String) {
        self.store.note(&line);
        self.trouble = Some(line);
    }
}

/// Whether a program is replayed when the mount begins.
fn is_expected(one: &Candidate<'_>) -> bool {
    one.idle_mounts < IDLE_MOUNTS
}
