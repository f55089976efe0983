//! `auto_unmount`: a second process that takes the mount away when the daemon was killed.
//!
//! fusermount3 has such a mode, but it asks whether the mount's root can still be opened, and here
//! it can: what the kernel was told once it keeps, also when the daemon is dead. The watcher reads
//! from a pipe whose other end only the daemon has; when the daemon ends, however, the read ends.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use crate::mounting::{self, Mounted};
use crate::{Error, daemon};

/// The value of [`daemon::MARK`] that makes a watcher of this program.
pub(crate) const WATCH: &str = "watch";

/// Looks at a mount whose daemon ended, 50 ms apart, before it is left alone: descriptors of a
/// dying process close one after another.
const LOOKS: usize = 100;

/// Starts the watcher. It lives until the returned value is dropped or this process ends.
pub(crate) fn start(mounted: &Mounted) -> Result<Child, Error> {
    let entry = mounting::find(&mounted.mountpoint)?
        .ok_or_else(|| Error::mountpoint(&mounted.mountpoint, "was unmounted at once"))?;
    daemon::this_command()
        .env(daemon::MARK, WATCH)
        .arg(WATCH)
        .arg(entry.device)
        .arg(&mounted.mountpoint)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(Error::std_io("cannot start the watcher"))
}

/// The life of the watcher.
pub(crate) fn run(arguments: &[OsString]) -> Result<(), Error> {
    let [_, device, mountpoint] = arguments else {
        return Ok(());
    };
    // A signal to the daemon's group is not for us, and the mount point is not ours to hold.
    let _ = rustix::process::setsid();
    rustix::process::chdir("/").map_err(Error::io("chdir /"))?;
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let mountpoint = Path::new(mountpoint);
    for _ in 0..LOOKS {
        match mounting::find(mountpoint)? {
            Some(entry) if *entry.device == **device => {}
            _ => return Ok(()),
        }
        if crate::is_dead_mount(mountpoint) {
            return mounting::umount(mountpoint);
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
