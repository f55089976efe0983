//! Learns every launch, so that the next one finds the page cache filled: a profile for each
//! program.
//!
//! A launch begins when a file that can be executed is read from its beginning. The programs that
//! were launched from one of the last mounts are replayed at once; where there are none, nothing is
//! read but a few bytes, and the replay of a program begins with its launch.

use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Seek};
use std::sync::Arc;

use erofs_engine::Engine;
use erofs_engine::erofs_format::Nid;
use launch_profile::{Learned, Program, learned, limits};
use serde_json::{Value, json};

use super::names;
use super::recording::Recording;
use super::replaying::Replaying;
use super::state::{Beginning, Launch};
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
const ENOUGH_PROBES: usize = 8;

/// The thread that learns.
pub(super) struct Learner {
    pub(super) launch: Arc<Launch>,
    pub(super) replaying: Replaying,
    pub(super) root: Nid,
    learned: Learned,
    /// What is not read before it is needed.
    unread: Option<File>,
    /// Programs that are replayed.
    replayed: HashSet<Nid>,
}

impl Learner {
    pub(super) fn new(launch: Arc<Launch>, replaying: Replaying, root: Nid) -> Self {
        Self {
            launch,
            replaying,
            root,
            learned: Learned::default(),
            unread: None,
            replayed: HashSet::new(),
        }
    }

    /// Until the mount ends.
    pub(super) fn run(mut self) {
        let Some(engine) = self.replaying.parts.engine.upgrade() else {
            return;
        };
        let name = names::identity(&engine).file_name();
        drop(engine);
        // Nothing has to be learned: where that cannot be, `stat` has the reason.
        match self.replaying.helper.open(&name) {
            Ok(file) => self.unread = file,
            Err(error) => return self.launch.fail(error.to_string()),
        }
        if self.idle_mounts() < IDLE_MOUNTS {
            self.read();
            self.replay(|program| program.idle_mounts < IDLE_MOUNTS);
        }
        let mut launched = HashSet::new();
        while let Some(program) = self.launch.recorder.wait_for_program() {
            self.read();
            self.replay(|known| known.nid == program);
            let recording = self.launch.recorder.wait();
            if self.learn(program, &recording) {
                launched.insert(program);
            }
            if self.launch.beginning == Beginning::AnyFile {
                self.launch.recorder.end();
            }
        }
        let mut changed = false;
        for program in &mut self.learned.programs {
            if !launched.contains(&program.nid) && program.idle_mounts < IDLE_MOUNTS {
                program.idle_mounts += 1;
                changed = true;
            }
        }
        if changed {
            self.write();
        }
    }

    fn idle_mounts(&mut self) -> u32 {
        let mut header = [0; learned::HEADER_BYTES];
        let read = self
            .unread
            .as_mut()
            .map(|file| file.read_exact(&mut header));
        match read {
            Some(Ok(())) => Learned::idle_mounts_of(&header),
            _ => 0,
        }
    }

    /// What earlier mounts have learned.
    fn read(&mut self) {
        let Some(mut file) = self.unread.take() else {
            return;
        };
        let (mut bytes, most) = (Vec::new(), limits::LEARNED_BYTES as u64 + 1);
        // What cannot be read teaches nothing.
        let _ = file.rewind();
        let _ = file.take(most).read_to_end(&mut bytes);
        let Some(engine) = self.replaying.parts.engine.upgrade() else {
            return;
        };
        match Learned::parse(&bytes, &names::identity(&engine)) {
            Ok(learned) => self.learned = learned,
            Err(error) => self.launch.fail(error.to_string()),
        }
        self.show(None);
    }

    /// Begins to replay what programs read that are not replayed yet.
    fn replay(&mut self, is_one: impl Fn(&Program) -> bool) {
        let new = |program: &&Program| is_one(program) && !self.replayed.contains(&program.nid);
        let programs = self.learned.programs.iter().filter(new);
        let profiles = programs.map(|program| (Some(program.nid), program.profile.clone()));
        let profiles: Vec<_> = profiles.collect();
        self.replayed
            .extend(profiles.iter().filter_map(|one| one.0));
        if !profiles.is_empty() {
            self.replaying.start(&self.launch, profiles);
        }
    }

    /// Adds a launch to what is known; false for what was none.
    fn learn(&mut self, nid: Nid, recording: &Recording) -> bool {
        let Some(engine) = self.replaying.parts.engine.upgrade() else {
            return false;
        };
        let is_search = recording.windows.len() > MOST_WINDOWS
            || recording.directories.len() > MOST_DIRECTORIES;
        let begins = self.launch.beginning == Beginning::AnyFile || is_program(&engine, nid);
        if is_search || !begins {
            return false;
        }
        let asked = names::profile(&engine, self.root, recording);
        drop(engine);
        let programs = &mut self.learned.programs;
        let place = programs.iter().position(|known| known.nid == nid);
        let mut program = match place {
            Some(place) => programs.remove(place),
            None if asked.windows.is_empty() => return false,
            None => Program {
                nid,
                launches: 0,
                idle_mounts: 0,
                profile: asked.clone(),
            },
        };
        let known = program.profile.windows.len();
        program.launches = program.launches.saturating_add(1);
        program.idle_mounts = 0;
        let replays = self.launch.replays();
        let probes = replays.map(|replay| replay.probes(&program.profile));
        let (hit, missed) = probes.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let is_wrong = hit + missed >= ENOUGH_PROBES && hit * 2 < missed;
        // Names and windows behind those that are known.
        let mut all = program.profile.clone();
        all.merge(&asked);
        let new = all.bytes() - program.profile.bytes();
        if new * NEW_SHARE as u64 > program.profile.bytes() {
            program.profile = all;
        }
        let missed = place.map(|_| asked.windows.len().min(known));
        if !is_wrong {
            programs.insert(0, program);
        }
        self.show(missed.map(|missed| (nid, missed)));
        self.write();
        true
    }

    /// For the counters. `missed`: windows that the launch of a known program had to ask for.
    fn show(&self, missed: Option<(Nid, usize)>) {
        let shows = |program: &Program, before: &[Value]| {
            let path = program.path().unwrap_or_default();
            let missed = match missed {
                Some((nid, missed)) if nid == program.nid => json!(missed),
                _ => {
                    let same = before.iter().find(|one| one["nid"] == program.nid);
                    same.map_or(Value::Null, |one| one["windows_asked"].clone())
                }
            };
            json!({
                "path": text::name(&path),
                "nid": program.nid,
                "launches": program.launches,
                "windows": program.profile.windows.len(),
                "bytes": program.profile.bytes(),
                "windows_asked": missed,
            })
        };
        let programs = self.learned.programs.iter();
        self.launch
            .show(|before| programs.map(|one| shows(one, before)).collect());
    }

    fn write(&self) {
        if let Err(error) = self.replaying.helper.write(&self.learned.to_bytes()) {
            self.launch.fail(error.to_string());
        }
    }
}

/// Whether the kernel could execute a file, by its first bytes.
fn is_program(engine: &Engine, nid: Nid) -> bool {
    let mut first = [0; 4];
    let inode = engine.inode(nid);
    let read = inode.and_then(|inode| engine.prefetch_at(&inode, 0, &mut first));
    read.is_ok() && (first == *b"\x7fELF" || first.starts_with(b"#!"))
}
