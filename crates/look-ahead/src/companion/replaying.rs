//! Replays programs: those that are expected, those that were launched, and those whose profiles
//! came with the image.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;

use launch_profile::Program;
use launch_profile::text::escaped;
use rustix::io::Errno;

use super::{Companion, is_expected};
use crate::client;
use crate::replay::Replay;
use crate::travelling::{Candidate, Known, Origin, PATH_IN_MOUNT};

/// Maximum number of replays in one mount, at its beginning and at later launches together.
pub(super) const MOST_REPLAYS: usize = 64;

/// Maximum number of times that the companion requests a profile that travels with the image;
/// normally it requests the profile once.
const MOST_ARRIVALS: usize = 8;

/// Number of threads for replays: with one thread, the launch waits for names more often; a third
/// thread brings no gain.
const THREADS: usize = 2;

impl Companion {
    /// Takes a profile that travels with the image, if it has arrived.
    pub(super) fn take_travelling(&mut self) {
        let (seen, asked) = self.arrivals;
        let arrivals = self.reader.arrivals();
        if !self.settings.replays || arrivals == seen || asked == MOST_ARRIVALS {
            return;
        }
        self.arrivals = (arrivals, asked + 1);
        match self.store.travelling() {
            Ok(Some(file)) => self.add_travelling(file, self.settings.origin),
            Ok(None) => {}
            Err(line) => self.complain(line),
        }
    }

    /// Looks for a profile inside the mount.
    pub(super) fn look_inside(&mut self) {
        let may_be_there = self.reader.is_inside() != Some(false) && !self.settings.is_named;
        if !may_be_there || !self.settings.replays || self.has_looked_inside {
            return;
        }
        // A profile beside the image takes precedence.
        self.take_travelling();
        self.has_looked_inside = true;
        let Some(root) = self.mount.root() else {
            return;
        };
        match client::open_file(&root, PATH_IN_MOUNT.as_bytes()) {
            Ok((file, ..)) => self.add_travelling(file.into(), Origin::Image),
            Err(Errno::NOENT) => {}
            Err(error) => self.complain(format!("{PATH_IN_MOUNT}: {error}")),
        }
    }

    fn add_travelling(&mut self, file: File, origin: Origin) {
        match self.travelling.add(file, origin) {
            Ok(()) => self.replay(is_expected),
            Err(line) => self.complain(line),
        }
    }

    /// Forgets a wrong profile that came with the image, for as long as the mount exists.
    pub(super) fn forget(&mut self, path: &[u8]) {
        self.travelling.forget(path);
        for (known, replay) in &self.unproved {
            if known.program.path == path {
                replay.stop();
            }
        }
    }

    /// Forgets profiles most of whose files do not exist or have other sizes.
    pub(super) fn prove_replays(&mut self) {
        let (running, ended) = std::mem::take(&mut self.unproved)
            .into_iter()
            .partition(|(_, replay)| replay.is_running());
        self.unproved = running;
        for (Known { program, origin }, replay) in ended {
            let (refused, windows) = replay.refused();
            if 2 * refused > windows {
                self.travelling.forget(&program.path);
                self.complain(format!(
                    "{} no longer fits: {}: {refused} of {windows} windows belong to files that \
                     are missing or have a different size",
                    origin.subject(),
                    escaped(&program.path),
                ));
            }
        }
    }

    pub(super) fn replay_one(&mut self, path: Option<&[u8]>) {
        if let Some(path) = path {
            self.replay(|one| one.program.path == path);
        }
    }

    /// Starts replaying programs that are not being replayed yet.
    pub(super) fn replay(&mut self, is_one: impl Fn(&Candidate<'_>) -> bool) {
        if !self.settings.replays {
            return;
        }
        let is_new = |one: &Candidate<'_>| {
            let known = self.replayed.contains(&one.program.path);
            !known && is_one(one) && !one.program.profile.windows.is_empty()
        };
        let known = self.travelling.beside(&self.learned.programs);
        let known = known.filter(is_new).map(Candidate::to_known);
        let room = MOST_REPLAYS.saturating_sub(self.replays.len());
        let known: Vec<Known> = known.take(room).collect();
        if known.is_empty() {
            return;
        }
        let paths = known.iter().map(|known| known.program.path.clone());
        self.replayed.extend(paths);
        let memory = self.settings.memory.as_ref().map_or(0, free_memory);
        let budget = memory / 2 / known.len() as u64;
        for known in known {
            let Program { profile, path, .. } = &known.program;
            let replay = Replay::new(profile, path, budget, Arc::clone(&self.read_ahead));
            let replay = Arc::new(replay);
            self.replays.push(Arc::clone(&replay));
            if known.origin != Origin::Here {
                self.unproved.push((known, Arc::clone(&replay)));
            }
            let is_launched = self.begun.contains(replay.program());
            self.turns.add(replay, is_launched);
        }
        for number in self.turns.start_threads(THREADS) {
            self.start_thread(number);
        }
    }

    /// Starts one of the threads that replay.
    fn start_thread(&self, number: usize) {
        let Some(registrar) = self.reader.registrar() else {
            return self.turns.did_not_start();
        };
        let (turns, mount) = (Arc::clone(&self.turns), Arc::clone(&self.mount));
        let name = format!("erofs_replay/{number}");
        let spawned = thread::Builder::new().name(name).spawn(move || {
            registrar.register();
            turns.run(&*mount, &registrar);
        });
        if spawned.is_err() {
            self.turns.did_not_start();
        }
    }
}

/// The memory, in bytes, that programs could allocate without swapping (`MemAvailable`).
fn free_memory(memory: &File) -> u64 {
    let mut text = [0; 4096];
    let length = memory.read_at(&mut text, 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&text[..length]);
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}
