//! What the process of a companion gives it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

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

/// The file of what launches taught. An error is one line for the user.
pub trait Store {
    /// Opens it; `None` if there is none yet.
    ///
    /// # Errors
    /// It is out of reach, or something else.
    fn open(&mut self) -> Result<Option<File>, String>;
    /// Replaces it.
    ///
    /// # Errors
    /// It is as it was.
    fn write(&mut self, text: &str) -> Result<(), String>;
}

/// What the mount was made with.
#[derive(Debug)]
pub struct Settings {
    /// Launches are learned and replayed.
    pub learns: bool,
    /// Any file that is read begins a launch, the only one of the mount: not a program alone.
    pub any_file: bool,
    /// The user named the file: one that is something else is left alone.
    pub is_named: bool,
    /// Launches may be replayed: they may fetch from a URL.
    pub replays: bool,
    /// Bytes that the kernel reads ahead of this mount at a time.
    pub at_a_time: u64,
    /// `/proc/meminfo`.
    pub memory: Option<File>,
    /// Why nothing is learned: a line for the user.
    pub trouble: Option<String>,
}
