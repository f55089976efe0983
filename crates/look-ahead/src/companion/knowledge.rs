//! What has been learned from launches: the file that holds it, and what each launch adds to it.

use std::fs::File;
use std::io::Read;

use launch_profile::text::escaped;
use launch_profile::{Error, Learned, Profile, Program, limits};

use super::{Companion, IDLE_MOUNTS, is_expected};
use crate::figures::probes;
use crate::learning::{self, Place};
use crate::recording::Recording;

/// How many times to re-read a profile that another mount of the image is writing at the same time.
pub(super) const TRIES: usize = 20;

/// A program that reads more windows than this (512 MiB) is copying or searching, not launching.
const MOST_WINDOWS: usize = 4096;

/// A program that uses more directories than this is not launching either.
const MOST_DIRECTORIES: usize = 1024;

/// A launch counts as changed if, of the windows that it requests, at least one in this many is not
/// in its profile.
const NEW_SHARE: usize = 20;

/// Number of probes that suffice to show whether a profile is still good.
const ENOUGH_PROBES: u64 = 8;

impl Companion {
    /// Reads the file again, since other mounts and `profile remove` may have changed it. An error
    /// means that the file is not a profile or cannot be read.
    pub(super) fn read(&mut self) -> Result<(), ()> {
        let file = self.store.open();
        let file = file.map_err(|line| self.trouble = Some(line))?;
        self.learned.programs = file.map_or(Ok(Vec::new()), |file| self.parse(file))?;
        Ok(())
    }

    /// Parses the file. Nothing is learned from a file that is damaged or belongs to another image.
    pub(super) fn parse(&mut self, file: File) -> Result<Vec<Program>, ()> {
        let (mut bytes, most) = (Vec::new(), limits::LEARNED_BYTES as u64 + 1);
        let _ = file.take(most).read_to_end(&mut bytes);
        match Learned::parse(&bytes, &self.image) {
            Ok(learned) => Ok(learned.programs),
            Err(error) => {
                self.trouble = Some(error.to_string());
                match error {
                    Error::Magic if self.settings.is_named => Err(()),
                    _ => Ok(Vec::new()),
                }
            }
        }
    }

    /// Adds a launch to what is known; returns false if the recording does not show a launch.
    pub(super) fn learn(&mut self, program: u64, recording: &Recording) -> bool {
        let Some(Place { path, .. }) = self.place(program) else {
            return false;
        };
        let length = |ino| self.place(ino).map(|place| place.size);
        let is_search = recording.windows.len() > MOST_WINDOWS
            || recording.directories() > MOST_DIRECTORIES
            || !self.settings.any_file && recording.is_copy(length);
        if is_search {
            return false;
        }
        let asked = learning::profile(recording, &|ino| self.place(ino));
        let place = |programs: &[Program]| programs.iter().position(|known| known.path == path);
        let was_known = place(&self.learned.programs).is_some() && !self.is_behind;
        if self.read().is_err() {
            return false;
        }
        let at = place(&self.learned.programs);
        // The profile was removed during the launch.
        if was_known && at.is_none() {
            return false;
        }
        let here = at.map(|at| self.learned.programs.remove(at));
        let here = here.filter(|program| !program.is_note());
        let travelled = self.travelling.of(&path).map(|known| known.program.clone());
        let is_new = here.is_none() && travelled.is_none();
        let mut known = match here.or(travelled) {
            Some(known) => known,
            None if asked.windows.is_empty() => return false,
            None => Program {
                path: path.clone(),
                profile: asked.clone(),
                ..Program::default()
            },
        };
        let windows = known.profile.windows.len();
        known.launches = known.launches.saturating_add(1);
        known.idle_mounts = 0;
        let is_wrong = self.is_wrong(&known.profile);
        // Names and windows are added after those already known.
        let mut all = known.profile.clone();
        all.merge(&asked);
        all.trim(&known.trim);
        let new = all.bytes().saturating_sub(known.profile.bytes());
        if new * NEW_SHARE as u64 > known.profile.bytes() {
            known.profile = all;
        }
        let missed = (!is_new).then(|| asked.windows.len().min(windows));
        self.launched.insert(path, missed);
        // A program that must be learned again is forgotten. Only its trim limits are kept, and the
        // fact that no profile from the image fits it.
        let travels = self.travelling.of(&known.path).map(|known| known.origin);
        if is_wrong {
            known.profile = Profile::default();
            if let Some(origin) = travels {
                self.forget(&known.path);
                let (subject, path) = (origin.subject(), escaped(&known.path));
                self.complain(format!("launches of {path} do not follow {subject}"));
            }
        }
        let is_kept = !known.profile.windows.is_empty() || known.trim != Default::default();
        if is_kept || travels.is_some() {
            self.learned.programs.insert(0, known);
        }
        true
    }

    /// Whether launches no longer follow the profile.
    fn is_wrong(&self, profile: &Profile) -> bool {
        let paths = profile.files.iter().map(|it| profile.path(&it.name));
        let paths: Vec<Vec<u8>> = paths.collect();
        let windows = profile.windows.iter();
        let windows = windows.map(|window| (&paths[window.file as usize][..], window.number));
        let (hit, missed) = probes(&self.replays, windows);
        hit + missed >= ENOUGH_PROBES && hit * 2 < missed
    }

    /// Counts one more mount without a launch for programs that were expected but not launched.
    pub(super) fn count_idle_mount(&mut self) {
        for _ in 0..TRIES {
            if self.has_counted_idle_mount() {
                return;
            }
        }
    }

    /// Returns false if another mount wrote the file in the meantime.
    fn has_counted_idle_mount(&mut self) -> bool {
        let mut known = self.travelling.beside(&self.learned.programs);
        let expects = known.any(|known| is_expected(&known));
        drop(known);
        if !self.settings.learns || !expects || self.read().is_err() {
            return true;
        }
        let mut changed = false;
        // Add the programs whose profiles came with the image and that were not launched.
        for known in self.travelling.all() {
            let path = &known.program.path;
            let is_noted = self.learned.programs.iter().any(|one| one.path == *path);
            if !is_noted && self.learned.programs.len() < limits::PROGRAMS {
                self.learned.programs.push(Program {
                    path: path.clone(),
                    ..Program::default()
                });
            }
        }
        for program in &mut self.learned.programs {
            let expected = program.idle_mounts < IDLE_MOUNTS;
            if expected && !self.launched.contains_key(&program.path) {
                program.idle_mounts += 1;
                changed = true;
            }
        }
        !changed || self.write()
    }

    /// Returns false if another mount has written the file since it was read.
    pub(super) fn write(&mut self) -> bool {
        let learned = Learned {
            image: Some(self.image),
            programs: std::mem::take(&mut self.learned.programs),
        };
        let written = self.store.write(&learned.to_text());
        if let Err(line) = &written {
            self.trouble = Some(format!("cannot save the launch profile: {line}"));
        }
        self.learned = learned;
        written.unwrap_or(true)
    }
}
