//! Learns every launch, so that the next one finds the page cache filled: a profile for each
//! program.
//!
//! A launch begins when a file that can be executed is read from its beginning. The programs that
//! were launched from one of the last mounts are replayed at once; where there are none, nothing is
//! read but a few bytes, and the replay of a program begins with its launch.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use erofs_engine::Engine;
use erofs_engine::erofs_format::Nid;
use launch_profile::{Error, Learned, Profile, Program, Trim, learned, limits};

use super::decoded::DecodedBytes;
use super::last_launch::Sign;
use super::names;
use super::progress::{Beginning, Launch};
use super::recording::Recording;
use super::replaying::Replaying;
use super::report::ProgramFigures;
use crate::text;

/// After this many mounts in a row without a launch, one is not expected.
const IDLE_MOUNTS: u32 = 3;

/// Whatever reads more windows, 512 MiB, copies or searches, and launches nothing.
const MOST_WINDOWS: usize = 4096;

/// The same of directories.
const MOST_DIRECTORIES: usize = 1024;

/// A launch that asks for one window in this many, or more, beside those of its profile has
/// changed.
const NEW_SHARE: usize = 20;

/// Probes that show whether a profile is still good.
const ENOUGH_PROBES: u64 = 8;

/// The thread that learns.
pub(super) struct Learner {
    launch: Arc<Launch>,
    replaying: Replaying,
    root: Nid,
    /// The name of the file in the cache folder.
    name: String,
    /// The user named a file: one that is something else is left alone.
    is_named: bool,
    /// What the file had when it was read last. Other mounts write it, too.
    learned: Learned,
    /// Programs that were launched from this mount, and the windows that their last launch had to
    /// ask for, if they were known before.
    launched: HashMap<Nid, Option<usize>>,
    /// Programs that are replayed.
    replayed: HashSet<Nid>,
    decoded: Option<DecodedBytes>,
}

impl Learner {
    pub(super) fn new(
        launch: Arc<Launch>,
        replaying: Replaying,
        (root, is_named): (Nid, bool),
        decoded: Option<DecodedBytes>,
    ) -> Self {
        Self {
            launch,
            replaying,
            root,
            is_named,
            name: String::new(),
            learned: Learned::default(),
            launched: HashMap::new(),
            replayed: HashSet::new(),
            decoded,
        }
    }

    /// Until the mount ends, and what it keeps decoded is kept.
    pub(super) fn run(mut self, signs: &Sender<Sign>) {
        if let Some(engine) = self.replaying.parts.engine.upgrade() {
            let root = (self.root != engine.root()).then_some(self.root);
            self.learned.image = names::identity(&engine);
            self.name = self.learned.image.file_name(root);
        }
        // Nothing has to be learned: where that cannot be, `stat` has the reason.
        let idle = match self.replaying.companion.open(&self.name) {
            Ok(file) => file.map_or(0, idle_mounts),
            Err(error) => return self.launch.fail(error.to_string()),
        };
        if idle < IDLE_MOUNTS {
            if self.read().is_err() {
                return;
            }
            self.replay(is_expected);
        }
        while let Some(program) = self.launch.recorder.wait_for_program() {
            if self.read().is_err() {
                return;
            }
            self.replay(|known| known.nid == program);
            let recording = self.launch.recorder.wait();
            if self.learn(program, &recording) {
                self.write();
                self.keep_decoded();
            }
            if self.launch.beginning == Beginning::AnyFile {
                self.launch.recorder.end();
            }
        }
        self.count_idle_mount();
        // The mount may have given it up.
        let _ = signs.send(Sign::Written);
    }

    /// Has what the launches read kept decoded.
    fn keep_decoded(&mut self) {
        self.use_decoded();
        let (programs, replaying) = (&self.learned.programs, &self.replaying);
        if let Some(decoded) = &mut self.decoded {
            let engine = replaying.parts.engine.clone();
            decoded.keep(programs.clone(), engine, &replaying.companion, &self.launch);
        }
    }

    /// Has the engine take what earlier mounts kept.
    fn use_decoded(&mut self) {
        let engine = self.replaying.parts.engine.upgrade();
        if let Some((decoded, engine)) = self.decoded.as_mut().zip(engine) {
            decoded.use_in(&engine, &self.launch);
        }
    }

    /// What the file has by now: other mounts write it, and so does `profile remove`. An error: it
    /// is something else, or out of reach.
    fn read(&mut self) -> Result<(), ()> {
        let file = self.replaying.companion.open(&self.name);
        let file = file.map_err(|error| self.launch.fail(error.to_string()))?;
        self.learned.programs = file.map_or(Ok(Vec::new()), |file| self.parse(file))?;
        self.show();
        Ok(())
    }

    /// What is damaged, or is about another image, teaches nothing.
    fn parse(&self, file: File) -> Result<Vec<Program>, ()> {
        let (mut bytes, most) = (Vec::new(), limits::LEARNED_BYTES as u64 + 1);
        let _ = file.take(most).read_to_end(&mut bytes);
        match Learned::parse(&bytes, &self.learned.image) {
            Ok(learned) => Ok(learned.programs),
            Err(error) => {
                self.launch.fail(error.to_string());
                match error {
                    Error::Magic if self.is_named => Err(()),
                    _ => Ok(Vec::new()),
                }
            }
        }
    }

    /// Begins to replay what programs read that are not replayed yet.
    fn replay(&mut self, is_one: impl Fn(&Program) -> bool) {
        let new = |program: &&Program| is_one(program) && !self.replayed.contains(&program.nid);
        let programs = self.learned.programs.iter().filter(new);
        let programs: Vec<Program> = programs.cloned().collect();
        self.replayed
            .extend(programs.iter().map(|program| program.nid));
        if !programs.is_empty() {
            self.use_decoded();
            self.replaying.start(&self.launch, programs);
        }
    }

    /// Adds a launch to what is known; false for what was none.
    fn learn(&mut self, nid: Nid, recording: &Recording) -> bool {
        let Some(engine) = self.replaying.parts.engine.upgrade() else {
            return false;
        };
        let length = |nid| engine.inode(nid).ok().map(|inode| inode.size);
        let is_search = recording.windows.len() > MOST_WINDOWS
            || recording.directories.len() > MOST_DIRECTORIES
            || self.launch.beginning == Beginning::Program && recording.is_copy(length);
        let begins = self.launch.beginning == Beginning::AnyFile || is_program(&engine, nid);
        if is_search || !begins {
            return false;
        }
        let asked = names::profile(&engine, self.root, recording);
        drop(engine);
        let place = |programs: &[Program]| programs.iter().position(|known| known.nid == nid);
        let was_known = place(&self.learned.programs).is_some();
        if self.read().is_err() {
            return false;
        }
        let programs = &mut self.learned.programs;
        let place = place(programs);
        // It was removed during the launch.
        if was_known && place.is_none() {
            return false;
        }
        let mut program = match place {
            Some(place) => programs.remove(place),
            None if asked.windows.is_empty() => return false,
            None => Program {
                nid,
                launches: 0,
                idle_mounts: 0,
                trim: Trim::default(),
                profile: asked.clone(),
            },
        };
        let known = program.profile.windows.len();
        program.launches = program.launches.saturating_add(1);
        program.idle_mounts = 0;
        let (files, windows) = (&program.profile.files, program.profile.windows.iter());
        let windows = windows.map(|window| (files[window.file as usize].nid, window.number));
        let (hit, missed) = self.launch.probes(windows);
        let is_wrong = hit + missed >= ENOUGH_PROBES && hit * 2 < missed;
        // Names and windows behind those that are known.
        let mut all = program.profile.clone();
        all.merge(&asked);
        all.trim(&program.trim);
        let new = all.bytes().saturating_sub(program.profile.bytes());
        if new * NEW_SHARE as u64 > program.profile.bytes() {
            program.profile = all;
        }
        let missed = place.map(|_| asked.windows.len().min(known));
        self.launched.insert(nid, missed);
        // One that has to be learned anew is forgotten, but for what it was trimmed to.
        if is_wrong {
            program.profile = Profile::default();
        }
        if !program.profile.windows.is_empty() || program.trim != Trim::default() {
            programs.insert(0, program);
        }
        self.show();
        true
    }

    /// For the counters.
    fn show(&self) {
        let shows = |program: &Program| ProgramFigures {
            path: text::name(&program.path().unwrap_or_default()),
            nid: program.nid,
            launches: program.launches,
            windows: program.profile.windows.len(),
            bytes: program.profile.bytes(),
            windows_asked: self.launched.get(&program.nid).copied().flatten(),
        };
        let programs = self.learned.programs.iter();
        self.launch.show(programs.map(shows).collect());
    }

    /// Programs that were expected, and not launched, had one more mount without a launch.
    fn count_idle_mount(&mut self) {
        if !self.learned.programs.iter().any(is_expected) || self.read().is_err() {
            return;
        }
        let mut changed = false;
        for program in self.learned.programs.iter_mut() {
            if is_expected(program) && !self.launched.contains_key(&program.nid) {
                program.idle_mounts += 1;
                changed = true;
            }
        }
        if changed {
            self.write();
        }
    }

    fn write(&self) {
        if let Err(error) = self.replaying.companion.write(&self.learned.to_bytes()) {
            self.launch.fail(format!("nothing is kept: {error}"));
        }
    }
}

/// It was launched from one of the last mounts.
fn is_expected(program: &Program) -> bool {
    program.idle_mounts < IDLE_MOUNTS
}

/// By the beginning of the file.
fn idle_mounts(mut file: File) -> u32 {
    let mut header = [0; learned::HEADER_BYTES];
    let read = file.read_exact(&mut header);
    read.map_or(0, |()| Learned::idle_mounts_of(&header))
}

/// Whether the kernel could execute a file, by its first bytes.
fn is_program(engine: &Engine, nid: Nid) -> bool {
    let mut first = [0; 4];
    let inode = engine.inode(nid);
    let read = inode.and_then(|inode| engine.prefetch_at(&inode, 0, &mut first));
    read.is_ok() && (first == *b"\x7fELF" || first.starts_with(b"#!"))
}
