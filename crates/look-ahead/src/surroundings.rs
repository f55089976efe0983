//! What the process of a companion gives it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::travelling::Origin;

/// The mount, for its companion: never by its path, so that no program finds it busy.
pub trait Mount: Send + Sync {
    /// The root directory; `None` when the mount is gone.
    fn root(&self) -> Option<Arc<OwnedFd>>;
    /// Has an event of poll(2) (`POLLPRI`) when the mount may be gone; `None` while the root is not
    /// kept.
    fn changes(&self) -> Option<Arc<File>>;
    /// The root as long as it is not released, also of a mount that is gone.
    fn kept(&self) -> Option<Arc<OwnedFd>>;
    /// Whether it is known to be gone; `look`: find that out.
    fn is_gone(&self, look: bool) -> bool;
    /// The root is not needed for now.
    fn release(&self);
}

/// The files of what launches taught. An error is one line for the user.
pub trait Store {
    /// Opens it; `None` if there is none yet.
    ///
    /// # Errors
    /// It is out of reach, or something else.
    fn open(&mut self) -> Result<Option<File>, String>;
    /// Replaces it, unless another mount did since it was opened: false.
    ///
    /// # Errors
    /// It is as it was.
    fn write(&mut self, text: &str) -> Result<bool, String>;
    /// Opens the profile that was announced, which travels with the image; `None` if there is none.
    ///
    /// # Errors
    /// It is out of reach.
    fn travelling(&mut self) -> Result<Option<File>, String>;
    /// A line for the log.
    fn note(&mut self, line: &str);
}

/// What the mount was made with.
#[derive(Debug)]
pub struct Settings {
    /// Launches are learned and replayed.
    pub learns: bool,
    /// Any file that is read begins the first launch of the mount: not a program alone.
    pub any_file: bool,
    /// With `any_file`: there is no other launch.
    pub one_launch: bool,
    /// The user named the file: one that is something else is left alone.
    pub is_named: bool,
    /// Launches may be replayed: they may fetch from a URL.
    pub replays: bool,
    /// Bytes that the kernel reads ahead of this mount at a time.
    pub at_a_time: u64,
    /// Where profiles come from that are announced.
    pub origin: Origin,
    /// `/proc/meminfo`.
    pub memory: Option<File>,
    /// Why nothing is learned: a line for the user.
    pub trouble: Option<String>,
}
