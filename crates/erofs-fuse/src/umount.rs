//! `erofast umount`.

use std::path::Path;

use crate::error::Error;
use crate::note::note;
use crate::{mounting, outside};

/// Unmounts an erofast mount; with `lazy` at once, also when it is busy: programs keep what they
/// have open. A notice names a server that stays, since it has stopped and has no mount helper.
///
/// # Errors
/// One line: nothing is mounted there, it is another filesystem or belongs to another user, it is
/// busy.
pub fn umount(path: &Path, lazy: bool) -> Result<(), Error> {
    let device = mounting::umount(path, lazy)?;
    if let Some(pid) = outside::stopped_holder(&device) {
        let (path, pid) = (path.display(), pid.as_raw_nonzero());
        note(format!(
            "{path}: unmounted; its server (process {pid}) is stopped and ends when it continues: \
             kill -CONT {pid}"
        ));
    }
    Ok(())
}
