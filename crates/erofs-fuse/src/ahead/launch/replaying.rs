//! The threads of a replay.

use std::io::Read;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};
use std::thread;

use erofs_engine::Engine;
use fuse_transport::{PageStore, Session};
use launch_profile::{Profile, Program};

use super::super::storing_threads::{self, First};
use super::progress::Launch;
use super::replay::{Parts, Replay};
use crate::error::Error;
use crate::protocol::Companion;
use crate::threads::with_that_of_workers;

/// Threads of a replay. With more of them, storing is the bottleneck.
const MOST_THREADS: usize = 8;

/// What the threads of a replay need.
pub(super) struct Replaying {
    pub(super) parts: Parts,
    pub(super) companion: Arc<Companion>,
    pub(super) session: Arc<Session>,
    /// Of the mount helper; the main thread's, which ends last.
    pub(super) signs_of_life: Vec<RawFd>,
    /// Has the first of the threads that store do something.
    pub(super) first: First,
    /// Nothing is replayed without.
    pub(super) prefetches: bool,
}

impl Replaying {
    /// Replays programs one after another. What a thread that cannot be started would store is
    /// left to the launch.
    pub(super) fn start(&self, launch: &Arc<Launch>, programs: Vec<Program>) {
        if !self.prefetches {
            return;
        }
        let budget = free_memory(&self.companion) / 2 / programs.len().max(1) as u64;
        let replays = programs.into_iter().filter_map(|program| {
            let place = launch.add(Replay::new(&program.profile, program.nid, budget))?;
            Some((place, program.profile))
        });
        let replays: Vec<(usize, Profile)> = replays.collect();
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.min(MOST_THREADS);
        let places: Vec<usize> = replays.iter().map(|(place, _)| *place).collect();
        for number in 0..threads {
            let (launch, parts) = (Arc::clone(launch), self.parts.clone());
            let places = places.clone();
            self.spawn(number, move |pages| {
                with_that_of_workers(&parts.engine, || {
                    for replay in places.iter().filter_map(|place| launch.replay(*place)) {
                        replay.run(number, threads, &parts, pages);
                    }
                });
            });
        }
        let (named, engine) = (Arc::clone(launch), self.parts.engine.clone());
        let companion = Arc::clone(&self.companion);
        // Threads that store have descriptors of their own, and none of the helper.
        let names = thread::Builder::new().name("erofs_names".to_owned());
        let spawned = names.spawn(move || {
            fetch_ahead(replays.iter().map(|(_, profile)| profile), &engine);
            with_that_of_workers(&engine, || {
                for (place, profile) in &replays {
                    let Some(replay) = named.replay(*place) else {
                        return;
                    };
                    match named.visit(|| visit(profile, &companion, replay)) {
                        Ok(listed) => replay.count_listed(listed),
                        // Pages can be stored of what the kernel knows by a name.
                        Err(error) => {
                            replay.stop();
                            named.fail(format!("nothing is read ahead: {error}"));
                        }
                    }
                    replay.names_are_known();
                }
            });
        });
        if spawned.is_err() {
            launch.replays().for_each(Replay::names_are_known);
        }
    }

    fn spawn(&self, number: usize, work: impl FnOnce(&PageStore) + Send + 'static) {
        let session = Arc::clone(&self.session);
        let signs = self.signs_of_life.clone();
        let name = format!("erofs_replay/{number}");
        (self.first)(Box::new(move || {
            drop(storing_threads::start(&name, session, signs, work));
        }));
    }
}

/// Has what the launches read fetched, if it is at a URL: in their order, more of it at a time than
/// the threads of a replay ask for.
fn fetch_ahead<'p>(profiles: impl Iterator<Item = &'p Profile>, engine: &Weak<Engine>) {
    let ranges = profiles.flat_map(Profile::ranges);
    let parts: Vec<_> = ranges.map(|(file, range)| (file.nid, range)).collect();
    if let Some(engine) = engine.upgrade() {
        // An error is met again by the replay.
        let _ = engine.fetch_ahead(&parts);
    }
}

/// Fills the kernel's dentry cache with the names of the launch; returns the directories listed.
fn visit(profile: &Profile, companion: &Companion, replay: &Replay) -> Result<usize, Error> {
    let directories = (0_u32..).zip(&profile.directories);
    let listed = directories.filter(|(_, directory)| directory.listed);
    let paths = listed.map(|(index, _)| profile.directory_path(Some(index)));
    let directories: Vec<Vec<u8>> = std::iter::once(Vec::new()).chain(paths).collect();
    let names: Vec<Vec<u8>> = profile
        .names
        .iter()
        .map(|name| profile.path(name))
        .collect();
    for part in directories.chunks(64) {
        // The mount ends: the rest is not needed.
        if replay.is_stopped() {
            return Ok(0);
        }
        companion.list(part)?;
    }
    companion.look_up(&names)?;
    Ok(directories.len())
}

/// Bytes that programs could still allocate without evicting others.
fn free_memory(companion: &Companion) -> u64 {
    let mut text = String::new();
    if let Ok(Some(mut file)) = companion.memory() {
        let _ = file.read_to_string(&mut text);
    }
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}
