//! The filesystem's side of launch profiles: reports of requests, and their state.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use erofs_engine::erofs_format::{Inode, Nid};
use launch_profile::Decoded;
use sys::pi_mutex::PiMutex;

use super::recorder::{Note, Recorder};
use super::replay::Replay;
use super::report::{LaunchFigures, ProgramFigures};

/// Replays of one mount at most: that of its beginning, and those of programs launched later.
const MOST_REPLAYS: usize = 8;

/// What begins a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beginning {
    /// A file that can be executed is read from its beginning. There are several in a mount.
    Program,
    /// Any file is read. There is one in a mount.
    AnyFile,
}

/// Launches that are recorded and replayed.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(super) recorder: Recorder,
    pub(super) beginning: Beginning,
    /// In the order in which they began.
    replays: [OnceLock<Replay>; MOST_REPLAYS],
    /// Replays whose names are looked up now.
    visits: AtomicUsize,
    /// Guarded by its own lock: programs that were learned, for the counters.
    programs: PiMutex<Vec<ProgramFigures>>,
    /// Guarded by its own lock: what went wrong beside it.
    trouble: PiMutex<Option<String>>,
    /// What earlier launches decoded, once it is needed.
    decoded: OnceLock<Arc<Decoded>>,
}

impl Launch {
    pub(super) fn new(beginning: Beginning) -> Self {
        Self {
            recorder: Recorder::new(),
            beginning,
            replays: std::array::from_fn(|_| OnceLock::new()),
            visits: AtomicUsize::new(0),
            programs: PiMutex::default(),
            trouble: PiMutex::default(),
            decoded: OnceLock::new(),
        }
    }

    /// A file was read by a request of this time, ns of CLOCK_MONOTONIC; likewise below.
    pub(crate) fn read(&self, at_ns: u64, inode: &Inode, offset: u64, length: usize) {
        let begins = match self.beginning {
            Beginning::Program => offset == 0 && inode.mode & 0o111 != 0,
            Beginning::AnyFile => true,
        };
        if begins {
            self.recorder.begin(inode.nid, at_ns);
        }
        self.recorder
            .note(at_ns, || Note::Read(inode.nid, offset, length));
        for replay in self.replays() {
            replay.was_read(inode.nid, offset, length);
        }
    }

    /// What is taken instead of decoding, for the counters.
    pub(super) fn set_decoded(&self, decoded: Arc<Decoded>) {
        let _ = self.decoded.set(decoded);
    }

    /// A name was looked up.
    pub(crate) fn looked_up(&self, at_ns: u64, directory: Nid, name: &[u8], found: bool) {
        self.recorder.visited(directory);
        if !self.is_visited() {
            let absent = || (!found).then(|| name.into());
            self.recorder
                .note(at_ns, || Note::LookedUp(directory, absent()));
        }
    }

    /// A directory was listed from its beginning.
    pub(crate) fn listed(&self, at_ns: u64, directory: Nid) {
        self.recorder.visited(directory);
        if !self.is_visited() {
            self.recorder.note(at_ns, || Note::Listed(directory));
        }
    }

    /// A reader waits for the network.
    pub(crate) fn waits(&self) {
        self.recorder.waits();
    }

    /// A symbolic link was read.
    pub(crate) fn read_link(&self, at_ns: u64, nid: Nid) {
        self.recorder.note(at_ns, || Note::ReadLink(nid));
    }

    /// Adds a replay, and returns its number; `None` where there were many. One thread does it.
    pub(super) fn add(&self, replay: Replay) -> Option<usize> {
        let number = self.replays().count();
        self.replays.get(number)?.set(replay).ok()?;
        Some(number)
    }

    /// Requests during `work` are those of a replay, not names of a launch.
    pub(super) fn visit<R>(&self, work: impl FnOnce() -> R) -> R {
        self.visits.fetch_add(1, Ordering::Relaxed);
        let result = work();
        self.visits.fetch_sub(1, Ordering::Relaxed);
        result
    }

    fn is_visited(&self) -> bool {
        self.visits.load(Ordering::Relaxed) > 0
    }

    pub(super) fn replay(&self, number: usize) -> Option<&Replay> {
        self.replays.get(number)?.get()
    }

    pub(super) fn replays(&self) -> impl Iterator<Item = &Replay> {
        self.replays.iter().map_while(OnceLock::get)
    }

    /// Which probes among windows of files the launches asked for, and which not: how many. What
    /// another replay has stored was there, and shows nothing.
    pub(super) fn probes(&self, windows: impl Iterator<Item = (Nid, u32)>) -> (u64, u64) {
        let (mut hit, mut missed) = (0, 0);
        for (nid, number) in windows {
            if self.replays().any(|replay| replay.has_taken(nid, number)) {
                continue;
            }
            let mut probes = self.replays().filter_map(|it| it.probe(nid, number));
            if let Some(first) = probes.next() {
                let is_hit = first || probes.any(|hit| hit);
                hit += u64::from(is_hit);
                missed += u64::from(!is_hit);
            }
        }
        (hit, missed)
    }

    /// Adds what the probes show: how much of what was read ahead was used. Unknown before a launch
    /// has asked for one; then what was read ahead of programs that were not launched was not.
    fn add_probes(&self, figures: &mut LaunchFigures) {
        let parts = self.replays().map(|replay| {
            let (hit, missed) = self.probes(replay.windows());
            (replay.prefetched(), hit, missed)
        });
        let parts: Vec<(u64, u64, u64)> = parts.collect();
        let hit: u64 = parts.iter().map(|part| part.1).sum();
        let all: u64 = hit + parts.iter().map(|part| part.2).sum::<u64>();
        let used = parts
            .iter()
            .map(|&(bytes, hit, missed)| match hit + missed {
                0 => bytes,
                all => bytes * hit / all,
            });
        let used = (hit > 0).then(|| used.sum::<u64>());
        let prefetched: u64 = parts.iter().map(|part| part.0).sum();
        (figures.probes, figures.probes_hit) = (all, hit);
        figures.used_bytes = used;
        figures.wasted_bytes = used.map(|used| prefetched - used);
    }

    /// What the counters have of the programs from here on.
    pub(super) fn show(&self, programs: Vec<ProgramFigures>) {
        *self.programs.lock() = programs;
    }

    pub(super) fn fail(&self, line: String) {
        *self.trouble.lock() = Some(line);
    }

    /// For the counters.
    pub(crate) fn figures(&self) -> LaunchFigures {
        let kept = self.decoded.get().map(|decoded| decoded.bytes().0);
        let mut figures = LaunchFigures {
            state: "learning",
            kept_bytes: kept.unwrap_or(0),
            programs: self.programs.lock().clone(),
            error: self.trouble.lock().clone(),
            ..LaunchFigures::default()
        };
        self.replays()
            .for_each(|replay| replay.add_to(&mut figures));
        self.add_probes(&mut figures);
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ahead::launch::replay::tests::{count_stored, replay_of, take_all};

    #[test]
    fn two_replays_are_reported_as_one() {
        let launch = Launch::new(Beginning::Program);
        assert_eq!(launch.figures().state, "learning");
        launch.add(replay_of(1, 0..32));
        launch.add(replay_of(2, 100..164));
        let figures = launch.figures();
        assert_eq!((figures.state, figures.windows), ("replayed", 96));
    }

    #[test]
    fn what_another_replay_stored_is_no_probe_and_programs_not_launched_used_nothing() {
        const WINDOW: u64 = 32 * 4096;
        let launch = Launch::new(Beginning::Program);
        // Windows 31, and 131 and 163, are probes.
        launch.add(replay_of(1, 0..32));
        launch.add(replay_of(2, 100..164));
        launch.replays().for_each(|replay| count_stored(replay, 90));
        assert_eq!(launch.figures().used_bytes, None);
        launch
            .replays()
            .for_each(|replay| replay.was_read(7, 31 * WINDOW, 1));
        let figures = |launch: &Launch| {
            let LaunchFigures {
                probes,
                probes_hit,
                used_bytes,
                wasted_bytes,
                ..
            } = launch.figures();
            [
                probes,
                probes_hit,
                used_bytes.unwrap(),
                wasted_bytes.unwrap(),
            ]
        };
        assert_eq!(figures(&launch), [3, 1, 90, 90]);
        launch
            .replays()
            .for_each(|replay| replay.was_read(7, 131 * WINDOW, 1));
        assert_eq!(figures(&launch), [3, 2, 135, 45]);
        let third = replay_of(3, [1, 163].into_iter());
        take_all(&third);
        launch.add(third);
        assert_eq!(figures(&launch), [2, 2, 180, 0]);
    }
}
