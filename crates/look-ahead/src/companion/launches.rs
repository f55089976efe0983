//! Handles events in the mount, and the beginning and end of a launch.

use std::time::Instant;

use super::knowledge::TRIES;
use super::replaying::MOST_REPLAYS;
use super::{Companion, LAST_NAMES, Launch};
use crate::client;
use crate::events::now_ms;
use crate::reader::Event;

/// A launch is over after this time without requests, in milliseconds.
const QUIET_MS: u64 = 2000;

/// A launch is over after this time at the latest, in milliseconds.
const LONGEST_MS: u64 = 30_000;

/// A launch without requests for this many milliseconds may be over.
const PAUSE_MS: u64 = 100;

/// Number of recently listed directories that are remembered: a launch also reads files whose names
/// were known before it began.
const RECENT: usize = 64;

impl Companion {
    pub(super) fn drain(&mut self) {
        while let Some((at_ms, event)) = self.reader.next() {
            self.note(at_ms, event);
        }
    }

    fn note(&mut self, at_ms: u64, event: Event) {
        if let Some(launch) = &mut self.launch {
            let before = launch.last;
            launch.last = at_ms.clamp(before, now_ms().max(before));
            if event == Event::Waits {
                launch.began += launch.last - before;
            }
            let since = launch.last.saturating_sub(launch.began);
            self.recording.now_ms = u32::try_from(since).unwrap_or(u32::MAX);
        }
        let records = self.launch.is_some();
        match event {
            Event::LookedUp {
                directory,
                name,
                found,
            } => {
                if let Some(found) = found {
                    self.names.add(directory, &name, found);
                }
                if records {
                    let ino = found.map(|found| found.ino);
                    self.recording.looked_up(directory, &name, ino);
                }
            }
            Event::Listed(directory) => {
                if records {
                    self.recording.listed(directory);
                }
                if self.recent.back() != Some(&directory) {
                    if self.recent.len() == RECENT {
                        self.recent.pop_front();
                    }
                    self.recent.push_back(directory);
                }
            }
            Event::LinkRead(ino) if records => self.recording.read_link(ino),
            Event::Began(ino) => self.begin(ino, at_ms),
            Event::Read {
                ino,
                offset,
                length,
            } => {
                if self.settings.any_file && !self.launched_once {
                    self.begin(ino, at_ms);
                }
                if self.launch.is_some() {
                    self.recording.read(ino, offset, length);
                }
                self.was_read(ino, offset, length);
            }
            Event::Wanted(path) => self.list(&path),
            Event::Waits | Event::LinkRead(_) => {}
        }
    }

    fn was_read(&self, ino: u64, offset: u64, length: u64) {
        if self.replays.is_empty() {
            return;
        }
        let path = self.names.path(ino);
        for replay in &self.replays {
            if let Some(file) = replay.file(ino, path.as_deref()) {
                replay.was_read(file, offset, length);
            }
        }
    }

    /// Lists a directory ahead of a walk.
    fn list(&mut self, path: &[u8]) {
        self.used = Instant::now();
        if let Some(root) = self.mount.root() {
            let _ = client::list(&root, path, &mut self.room, |_, _| true);
        }
    }

    /// Called when a program is read from its beginning: begins a launch, unless one is in
    /// progress.
    fn begin(&mut self, program: u64, at_ms: u64) {
        if !self.settings.learns {
            return self.reader.stop_recording();
        }
        let path = self.place(program).map(|place| place.path);
        if let Some(path) = path.as_ref().filter(|_| self.begun.len() < MOST_REPLAYS) {
            self.begun.insert(path.clone());
            self.turns.launched(path);
        }
        let was_replayed = path.as_ref().is_some_and(|it| self.replayed.contains(it));
        self.replay_one(path.as_deref());
        self.look_inside();
        // No local program can have changed a profile that came with the image.
        let came_with_image =
            |path: &Vec<u8>| self.travelling.of(path).is_some() && self.replayed.contains(path);
        let is_replayed = was_replayed || path.as_ref().is_some_and(came_with_image);
        let is_only = self.settings.any_file && self.settings.one_launch;
        if self.launch.is_some() || is_only && self.launched_once {
            return;
        }
        self.launched_once = true;
        let began = at_ms.min(now_ms());
        self.launch = Some(Launch {
            program,
            began,
            last: began,
        });
        self.is_behind = true;
        if !is_replayed {
            self.catch_up();
        }
    }

    /// Does the work at the beginning of a launch, unless it is already done.
    pub(super) fn catch_up(&mut self) {
        let Some(launch) = self.launch else { return };
        if !std::mem::take(&mut self.is_behind) {
            return;
        }
        // Asking for the root keeps it open, so that names can be found even if the mount goes away
        // during the launch.
        drop(self.mount.root());
        // Other processes may have changed the file; a program removed from it is learned again.
        if self.read().is_ok() {
            let path = self.place(launch.program).map(|place| place.path);
            self.replay_one(path.as_deref());
        }
    }

    /// Ends the launch if it is over or, with `now`, in any case.
    pub(super) fn end_launch(&mut self, now: bool) {
        let Some(launch) = self.launch else { return };
        let is_quiet = now_ms() >= launch.last + QUIET_MS;
        if !now && !is_quiet && now_ms() < launch.began + LONGEST_MS {
            return;
        }
        self.reader.stop_recording();
        if let Some(root) = self.mount.root() {
            self.find_names(&root, Instant::now() + LAST_NAMES);
        }
        self.launch = None;
        self.begun.clear();
        let recording = std::mem::take(&mut self.recording);
        self.searched.clear();
        self.entries.clear();
        let before = self.learned.programs.clone();
        let mut left = TRIES;
        while left > 0 && self.learn(launch.program, &recording) && !self.write() {
            self.learned.programs.clone_from(&before);
            left -= 1;
        }
    }

    /// Whether a launch is in progress but currently requests nothing.
    pub(super) fn pauses(&self) -> bool {
        let pauses = |launch: Launch| now_ms() >= launch.last + PAUSE_MS;
        self.launch.is_some_and(pauses)
    }
}
