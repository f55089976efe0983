//! Starts a recording or a replay, by the option `profile=`.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use erofs_engine::Engine;
use erofs_engine::erofs_format::Nid;
use fuse_transport::Session;
use launch_profile::{Profile, limits};

use super::super::nodes::Nodes;
use super::super::storing_threads::Call;
use super::learner::Learner;
use super::names;
use super::replay::{Parts, Replay};
use super::replaying::Replaying;
use super::state::Launch;
use crate::error::Error;
use crate::helper::{LaunchHelper, MountHelper};
use crate::options::ProfileLocation;

/// Parts of a mount that a profile uses.
pub(in super::super) struct Mount<'m> {
    pub(in super::super) engine: &'m Arc<Engine>,
    pub(in super::super) session: &'m Arc<Session>,
    pub(in super::super) nodes: Nodes,
    pub(in super::super) root: Nid,
    /// While set, small reads leave nothing in the page cache.
    pub(in super::super) exact_reads: Arc<AtomicBool>,
    /// Has the first of the threads that store do something.
    pub(in super::super) first: Arc<dyn Fn(Call) + Send + Sync>,
}

/// A recording or a replay under way.
pub(in super::super) struct Running {
    pub(in super::super) launch: Arc<Launch>,
    /// Writes what was recorded.
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Ends it with the mount: what was recorded is written.
    pub(in super::super) fn end(self) {
        if let Some(recorder) = self.launch.recorder() {
            recorder.end();
        }
        self.launch.replays().for_each(Replay::stop);
        if let Some(thread) = self.thread {
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
    let replaying = Replaying {
        parts: Parts {
            engine: Arc::downgrade(mount.engine),
            nodes: mount.nodes,
        },
        helper: Arc::new(helper),
        session: Arc::clone(mount.session),
        socket: mount_helper.as_fd().as_raw_fd(),
        first: Arc::clone(&mount.first),
    };
    if *location == ProfileLocation::Learned {
        return learn(replaying, mount);
    }
    let name = names::identity(mount.engine).file_name();
    let file = replaying.helper.open(&name)?;
    let stale = match file.map(|file| read(file, mount.engine)) {
        Some(Ok(profile)) => return Ok(replay(profile, &replaying)),
        Some(Err(launch_profile::Error::Magic)) if *location != ProfileLocation::Auto => {
            let line = launch_profile::Error::Magic.to_string();
            return Err(Error::Daemon(format!("profile: {line}; it is left alone")));
        }
        Some(Err(error)) => Some(error.to_string()),
        None => None,
    };
    record(stale, replaying.helper, mount)
}

fn learn(replaying: Replaying, mount: &Mount<'_>) -> Result<Running, Error> {
    let launch = Arc::new(Launch::learned());
    let learner = Learner::new(Arc::clone(&launch), replaying, mount.root);
    let thread = thread::Builder::new().name("erofs_learn".to_owned());
    let thread = thread.spawn(move || learner.run());
    Ok(Running {
        launch,
        thread: Some(thread.map_err(Error::std_io("erofs_learn"))?),
    })
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
    helper: Arc<LaunchHelper>,
    mount: &Mount<'_>,
) -> Result<Running, Error> {
    // Without the right to that, what the kernel reads ahead is recorded too.
    let exact = helper.set_read_ahead(false).is_ok();
    mount.exact_reads.store(exact, Ordering::Relaxed);
    let launch = Arc::new(Launch::recorded(stale));
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
        thread: Some(thread),
    })
}

fn replay(profile: Profile, replaying: &Replaying) -> Running {
    let launch = Arc::new(Launch::replayed());
    replaying.start(&launch, vec![(None, profile)]);
    Running {
        launch,
        thread: None,
    }
}
