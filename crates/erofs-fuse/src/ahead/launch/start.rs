//! Starts to learn and replay launches, by the option `profile=`.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};

use erofs_engine::Engine;
use erofs_engine::erofs_format::Nid;
use fuse_transport::Session;
use launch_profile::Learned;

use super::super::storing_threads::First;
use super::decoded::DecodedBytes;
use super::last_launch::{self, Sign};
use super::learner::Learner;
use super::progress::{Beginning, Launch};
use super::replay::{Parts, Replay};
use super::replaying::Replaying;
use crate::error::Error;
use crate::nodes::Nodes;
use crate::options::ProfileLocation;
use crate::protocol::{Companion, MountHelper};

/// Parts of a mount that a profile uses.
pub(crate) struct Mount<'m> {
    pub(crate) engine: &'m Arc<Engine>,
    pub(crate) session: &'m Arc<Session>,
    pub(crate) nodes: Nodes,
    pub(crate) root: Nid,
    /// Has the first of the threads that store do something.
    pub(crate) first: First,
    /// Keeps what launches read decoded.
    pub(crate) decoded: Option<DecodedBytes>,
    /// Reads ahead of launches may fetch from a URL.
    pub(crate) prefetches: bool,
}

/// Learning under way.
pub(crate) struct Running {
    pub(crate) launch: Arc<Launch>,
    /// Writes what was recorded.
    thread: JoinHandle<()>,
    signs: Receiver<Sign>,
}

impl Running {
    /// Ends it with the mount: what was recorded is written. Then the engine is closed.
    pub(crate) fn end(self, engine: &Engine) {
        self.launch.recorder.end();
        self.launch.replays().for_each(Replay::stop);
        last_launch::wait(&self.signs);
        engine.close();
        // A panic was printed, and the mount ends anyway.
        let _ = self.thread.join();
    }
}

/// Begins to learn launches, and to replay what is expected.
///
/// # Errors
/// A file that the mount names for its profiles is something else: it is not overwritten.
pub(crate) fn start(
    location: &ProfileLocation,
    companion: Companion,
    helper: &MountHelper,
    mount: Mount<'_>,
) -> Result<Running, Error> {
    if let ProfileLocation::File(path) = location
        && let Some(mut file) = companion.open("")?
        && Learned::is_other(&mut file)
    {
        let (path, line) = (path.display(), launch_profile::Error::Magic);
        let line = format!("{path}: profile: {line}; it is left alone");
        return Err(Error::Profile(line));
    }
    let replaying = Replaying {
        parts: Parts {
            engine: Arc::downgrade(mount.engine),
            nodes: mount.nodes,
        },
        companion: Arc::new(companion),
        session: Arc::clone(mount.session),
        signs_of_life: helper.signs_of_life(),
        prefetches: mount.prefetches,
        first: mount.first,
    };
    let launch = Arc::new(Launch::new(match location {
        ProfileLocation::Learned => Beginning::Program,
        ProfileLocation::Auto | ProfileLocation::File(_) => Beginning::AnyFile,
    }));
    let is_named = matches!(location, ProfileLocation::File(_));
    let root = (mount.root, is_named);
    let learner = Learner::new(Arc::clone(&launch), replaying, root, mount.decoded);
    let thread = thread::Builder::new().name("erofs_learn".to_owned());
    let (sender, signs) = mpsc::channel();
    let thread = thread.spawn(move || {
        last_launch::begin(&sender);
        learner.run(&sender);
    });
    let thread = thread.map_err(Error::std_io("erofs_learn"))?;
    Ok(Running {
        launch,
        thread,
        signs,
    })
}
