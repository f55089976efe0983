//! With `auto_unmount`: a process that unmounts when server and mount helper are both gone.
//!
//! Both hold the writing end of a pipe, the process the reading end: it wakes when the last of them
//! has died, however. Then the connection is aborted, so that no reader waits, and the mount is
//! taken out of the tree. Who kills this process too leaves a dead mount behind.

use std::io::Write;
use std::os::fd::OwnedFd;

use super::child::ChildProcess;
use super::connection::abort_file;
use super::mounted::Mounted;
use super::table;
use crate::error::Error;

/// Its name for `ps` and `pkill`: not that of the others.
const NAME: &std::ffi::CStr = c"erofs_unmount";

/// Starts it. As long as a process has the descriptor, or a duplicate of it, the mount stays.
pub(super) fn start(mounted: &Mounted) -> Result<OwnedFd, Error> {
    let (end, held) = std::io::pipe().map_err(Error::std_io("pipe"))?;
    let wait = || {
        let _ = rustix::thread::set_name(NAME);
        let _ = rustix::process::setsid();
        let _ = rustix::process::chdir("/");
        // The process that waits for the mount reads the standard output to its end.
        let _ = rustix::stdio::dup2_stdout(rustix::stdio::stderr());
        let read = rustix::io::retry_on_intr(|| rustix::io::read(rustix::stdio::stdin(), &mut [0]));
        match read {
            Ok(0) => unmount(mounted).map_or(1, |()| 0),
            _ => 1,
        }
    };
    // Never waited for: it ends after this process, and init reaps it.
    ChildProcess::fork(end.into(), &[], wait).map_err(Error::std_io("fork"))?;
    Ok(held.into())
}

fn unmount(mounted: &Mounted) -> Result<(), Error> {
    let is_there = mounted.id.find(&table::read()?).is_some();
    if !is_there {
        return Ok(());
    }
    // A thread of a killed server may wait for a read that nobody answers.
    let aborted = abort_file(&mounted.id.device).and_then(|mut file| file.write_all(b"1"));
    if aborted.is_err() {
        let _ = mounted.force_abort();
    }
    mounted.detach()
}
