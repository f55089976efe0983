//! `erofast umount`.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::{mounting, outside};
use erofs_fuse::error::Error;
use erofs_fuse::note;

/// Unmounts an erofast mount. With `lazy`, unmounts immediately even if the mount is busy; files
/// that programs have open stay usable. Prints a notice if the server remains, because it is
/// stopped and has no mount helper, or because the filesystem is still used elsewhere.
///
/// # Errors
/// Returns a one-line error if nothing is mounted at `path`, if the mount is of another type or
/// belongs to another user, or if it is busy.
pub fn umount(path: &Path, lazy: bool) -> Result<(), Error> {
    let (device, user) = mounting::umount(path, lazy)?;
    if let Some(pid) = outside::stopped_holder(&device) {
        let (path, pid) = (path.display(), pid.as_raw_nonzero());
        note(format!(
            "{path}: unmounted; its server (process {pid}) is stopped, and will end once it \
             continues: kill -CONT {pid}"
        ));
    } else if !lazy && stays(&device) {
        let server = user.and_then(|user| outside::server_of(&device, user));
        let server = server.map_or_else(String::new, |server| {
            format!(" (process {})", server.pid.as_raw_nonzero())
        });
        note(format!(
            "{}: unmounted; its server{server} keeps running because the filesystem is in use \
             elsewhere: as a layer of an overlay, at another path or in another mount namespace",
            path.display()
        ));
    }
    Ok(())
}

/// Time limit, far longer than an unused filesystem takes to disappear. It does not disappear at
/// once if the companion is looking up a name in its copy of the mount.
const GONE: Duration = Duration::from_secs(2);

/// Whether a filesystem is still in use although it was unmounted.
fn stays(device: &str) -> bool {
    let begin = Instant::now();
    while mounting::is_in_use(device) {
        if begin.elapsed() > GONE {
            return true;
        }
        thread::sleep(Duration::from_millis(10));
    }
    false
}
