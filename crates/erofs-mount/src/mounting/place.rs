//! The mount that a path leads to.
//!
//! Resolving a path may wait at each step for a server that has stopped, even the server of another
//! filesystem.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::table::{self, Entry, answer_within};
use erofs_fuse::error::Error;
use erofs_fuse::request::FSTYPE;

/// How long resolving a path may take.
const LIMIT: Duration = Duration::from_secs(5);

/// The topmost mount at a path, of any filesystem; `None` if nothing is mounted.
pub(crate) fn top_mount(path: &Path) -> Result<Option<Entry>, Error> {
    within(path, |path| table::top(&absolute(path)?))?
}

/// The mount point of the erofast mount at a path, as it appears in the mount table.
pub fn erofast_mount_at(path: &Path) -> Option<PathBuf> {
    let entry = top_mount(path).ok()??;
    (entry.fstype == FSTYPE).then_some(entry.mountpoint)
}

/// The mounts that are currently at a path, the topmost one last; none if they cannot be found.
pub(crate) fn mounts_at(path: &Path) -> Vec<Entry> {
    let find = |path: &Path| absolute(path).and_then(|path| table::at(&path));
    within(path, move |path| find(path).unwrap_or_default()).unwrap_or_default()
}

/// The mount point of the erofast mount that contains a file; `None` if the file is in no erofast
/// mount, or is itself a mount point. Needs Linux 5.8.
///
/// A file that cannot be reached because its server does not answer counts as being in the mount
/// that its path names.
pub fn mountpoint_of(path: &Path) -> Option<PathBuf> {
    within(path, table::mountpoint_of).unwrap_or_else(|_| {
        let path = std::path::absolute(path).ok()?;
        let mounts = table::own().ok()?.into_iter();
        let points = mounts.map(|entry| entry.mountpoint);
        let above = points.filter(|point| path.starts_with(point));
        above.max_by_key(|point| point.as_os_str().len())
    })
}

fn within<T: Send + 'static>(
    path: &Path,
    find: impl FnOnce(&Path) -> T + Send + 'static,
) -> Result<T, Error> {
    let own = path.to_owned();
    answers(path, move || find(&own))
}

/// Runs a query that has to resolve a path, with a time limit.
pub(crate) fn answers<T: Send + 'static>(
    path: &Path,
    find: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    answer_within(LIMIT, find).map_err(|unanswered| {
        let seconds = LIMIT.as_secs();
        let late = || format!("a filesystem on its path does not answer within {seconds} s");
        Error::mountpoint(path, unanswered.reason(late))
    })
}

/// The absolute path of a mount point. If the mount's daemon is dead, the last component cannot be
/// resolved and is left as it is.
fn absolute(path: &Path) -> Result<PathBuf, Error> {
    if let Ok(real) = std::fs::canonicalize(path) {
        return Ok(real);
    }
    let absolute = std::path::absolute(path).map_err(|e| Error::mountpoint(path, e.to_string()))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(Error::mountpoint(path, "not a mount point"));
    };
    let parent = std::fs::canonicalize(parent).map_err(|e| Error::no_mountpoint(path, &e))?;
    Ok(parent.join(name))
}
