//! What a companion needs from the process that runs it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::travelling::Origin;

/// The mount, for its companion: never accessed by its path, so that no program finds it busy.
pub trait Mount: Send + Sync {
    /// The root directory, or `None` if the mount is gone.
    fn root(&self) -> Option<Arc<OwnedFd>>;
    /// A file for which poll(2) reports `POLLPRI` when the mount may be gone; `None` while the root
    /// is not kept.
    fn changes(&self) -> Option<Arc<File>>;
    /// The root directory if it is kept, even if the mount is gone.
    fn kept(&self) -> Option<Arc<OwnedFd>>;
    /// Whether the mount is known to be gone; with `look`, checks now.
    fn is_gone(&self, look: bool) -> bool;
    /// Releases the root, which is not needed for now.
    fn release(&self);
}

/// The files that hold what launches have taught. Errors are one line for the user.
pub trait Store {
    /// Opens the file; returns `None` if it does not exist yet.
    ///
    /// # Errors
    /// The file cannot be read, or is not a profile.
    fn open(&mut self) -> Result<Option<File>, String>;
    /// Replaces the file; returns false if another mount has replaced it since it was opened.
    ///
    /// # Errors
    /// The file could not be written; it is unchanged.
    fn write(&mut self, text: &str) -> Result<bool, String>;
    /// Opens the announced profile that travels with the image; returns `None` if there is none.
    ///
    /// # Errors
    /// The profile cannot be read.
    fn travelling(&mut self) -> Result<Option<File>, String>;
    /// Writes a line to the log.
    fn note(&mut self, line: &str);
}

/// The settings of the mount.
#[derive(Debug)]
pub struct Settings {
    /// Whether launches are learned and replayed.
    pub learns: bool,
    /// Whether any file that is read, rather than only a program, begins the first launch of the
    /// mount.
    pub any_file: bool,
    /// With `any_file`: whether the mount's first launch is its only one.
    pub one_launch: bool,
    /// Whether the user named the file of learned launches. If so, an existing file that is not a
    /// profile is left alone.
    pub is_named: bool,
    /// Whether launches may be replayed, although that may fetch from a URL.
    pub replays: bool,
    /// Contains the size, in KiB, of the kernel's read-ahead for this mount, as soon as the mount
    /// is served.
    pub read_ahead: Option<File>,
    /// The origin of announced profiles.
    pub origin: Origin,
    /// The opened file `/proc/meminfo`.
    pub memory: Option<File>,
    /// The reason why nothing is learned, as a line for the user.
    pub trouble: Option<String>,
}
