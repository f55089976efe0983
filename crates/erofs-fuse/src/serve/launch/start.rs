//! Starts a recording or a replay, by the option `profile=`.

use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use erofs_engine::Engine;
use erofs_engine::erofs_format::Nid;
use fuse_transport::Session;
use launch_profile::{Profile, limits};

use super::super::nodes::Nodes;
use super::super::priority::with_that_of_workers;
use super::super::storing_threads;
use super::names;
use super::recorder::Recorder;
use super::replay::{Parts, Replay};
use super::state::{Launch, Mode};
use crate::error::Error;
use crate::helper::{LaunchHelper, MountHelper};
use crate::options::ProfileLocation;

/// Threads of a replay. With more of them, storing is the bottleneck.
const MOST_THREADS: usize = 8;

/// Parts of a mount that a profile uses.
pub(in super::super) struct Mount<'m> {
    pub(in super::super) engine: &'m Arc<Engine>,
    pub(in super::super) session: &'m Arc<Session>,
    pub(in super::super) nodes: Nodes,
    pub(in super::super) root: Nid,
    /// While set, small reads leave nothing in the page cache.
    pub(in super::super) exact_reads: Arc<AtomicBool>,
}

/// A recording or a replay under way.
pub(in super::super) struct Running {
    pub(in super::super) launch: Arc<Launch>,
    /// Writes the profile.
    recording: Option<JoinHandle<()>>,
}

impl Running {
    /// Ends it with the mount: what was recorded is written.
    pub(in super::super) fn end(self) {
        if let Some(recorder) = self.launch.recorder() {
            recorder.end();
        }
        if let Some(replay) = self.launch.replay() {
            replay.stop();
        }
        if let Some(thread) = self.recording {
            // A panic was printed, and the mount ends anyway.
            let _ = thread.join();
        }
    }
}

/// Reads the profile and begins to replay it; records one where there is none for this image.
///
/// # Errors
/// A file at the profile's place is something else: it is not overwritten.
pub(in super::super) fn start(
    location: &ProfileLocation,
    helper: LaunchHelper,
    mount_helper: &MountHelper,
    mount: &Mount<'_>,
) -> Result<Running, Error> {
    let name = names::identity(mount.engine).file_name();
    let file = helper.open(&name)?;
    let stale = match file.map(|file| read(file, mount.engine)) {
        Some(Ok(profile)) => return replay(profile, helper, mount_helper, mount),
        Some(Err(launch_profile::Error::Magic)) if *location != ProfileLocation::Auto => {
            let line = launch_profile::Error::Magic.to_string();
            return Err(Error::Daemon(format!("profile: {line}; it is left alone")));
        }
        Some(Err(error)) => Some(error.to_string()),
        None => None,
    };
    record(stale, helper, mount)
}

/// The profile in a file; that of another image counts as none.
fn read(file: File, engine: &Engine) -> Result<Profile, launch_profile::Error> {
    let mut bytes = Vec::new();
    let most = limits::FILE_BYTES as u64 + 1;
    // What cannot be read is no profile.
    let _ = file.take(most).read_to_end(&mut bytes);
    let profile = Profile::parse(&bytes)?;
    if profile.image == names::identity(engine) {
        return Ok(profile);
    }
    Err(launch_profile::Error::OtherImage(profile.image))
}

fn record(
    stale: Option<String>,
    helper: LaunchHelper,
    mount: &Mount<'_>,
) -> Result<Running, Error> {
    // Without the right to that, what the kernel reads ahead is recorded too.
    let exact = helper.set_read_ahead(false).is_ok();
    mount.exact_reads.store(exact, Ordering::Relaxed);
    let launch = Arc::new(Launch::new(Mode::Record(Recorder::new()), stale));
    let (ours, engine) = (Arc::clone(&launch), Arc::downgrade(mount.engine));
    let (exact_reads, root) = (Arc::clone(&mount.exact_reads), mount.root);
    let work = move || {
        let Some(recorder) = ours.recorder() else {
            return;
        };
        let recording = recorder.wait();
        exact_reads.store(false, Ordering::Relaxed);
        if exact {
            // The mount may be gone.
            let _ = helper.set_read_ahead(true);
        }
        let profile =
            (engine.upgrade()).map(|engine| names::profile(&engine, root, &recording, exact));
        let worth = profile.filter(|profile| !profile.windows.is_empty());
        if let Some(Err(error)) = worth.map(|profile| helper.write(&profile.to_bytes())) {
            ours.fail(error.to_string());
        }
    };
    let thread = thread::Builder::new().name("erofs_record".to_owned());
    let thread = thread.spawn(work).map_err(Error::std_io("erofs_record"))?;
    Ok(Running {
        launch,
        recording: Some(thread),
    })
}

fn replay(
    profile: Profile,
    helper: LaunchHelper,
    mount_helper: &MountHelper,
    mount: &Mount<'_>,
) -> Result<Running, Error> {
    let launch = Arc::new(Launch::new(Mode::Replay(Replay::new(&profile)), None));
    let parts = Parts {
        engine: Arc::downgrade(mount.engine),
        nodes: mount.nodes,
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(MOST_THREADS);
    let mut others = Vec::new();
    for number in 1..threads {
        let (begin, begun) = mpsc::channel::<()>();
        others.push(begin);
        let (launch, parts) = (Arc::clone(&launch), parts.clone());
        let name = format!("erofs_replay/{number}");
        storing_threads::spawn(&name, mount.session, mount_helper, move |pages| {
            with_that_of_workers(&parts.engine, || {
                // An error: the first thread ended without beginning.
                if let (Some(replay), Ok(())) = (launch.replay(), begun.recv()) {
                    replay.run(number, threads, &parts, pages);
                }
            });
        })?;
    }
    let ours = Arc::clone(&launch);
    storing_threads::spawn(
        "erofs_replay/0",
        mount.session,
        mount_helper,
        move |pages| {
            let Some(replay) = ours.replay() else { return };
            replay.set_budget(free_memory(&helper) / 2);
            with_that_of_workers(&parts.engine, || {
                match visit(&profile, &helper, replay) {
                    Ok(listed) => replay.count_listed(listed),
                    Err(error) => ours.fail(error.to_string()),
                }
                for other in others {
                    // It may have ended.
                    let _ = other.send(());
                }
                replay.run(0, threads, &parts, pages);
            });
        },
    )?;
    Ok(Running {
        launch,
        recording: None,
    })
}

/// Fills the kernel's dentry cache with the names of the launch; returns the directories listed.
fn visit(profile: &Profile, helper: &LaunchHelper, replay: &Replay) -> Result<usize, Error> {
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
        helper.list(part)?;
    }
    helper.look_up(&names)?;
    Ok(directories.len())
}

/// Bytes that programs could still allocate without evicting others.
fn free_memory(helper: &LaunchHelper) -> u64 {
    let mut text = String::new();
    if let Ok(Some(mut file)) = helper.memory() {
        let _ = file.read_to_string(&mut text);
    }
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}
