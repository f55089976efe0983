//! A process that cleans up once server and mount helper are both gone, however they ended. Used in
//! the foreground, where one signal reaches both, and with `auto_unmount`.
//!
//! Server and helper hold the writing end of a pipe, and the watcher, which holds the reading end,
//! wakes when the last of them has died. Then the watcher aborts the connection, so that no reader
//! waits, and detaches the mount from the tree if its handshake was never completed, or with
//! `auto_unmount`. If the watcher is killed too, a dead mount remains.

use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::child::ChildProcess;
use crate::mounting::{ExpectedMount, abort_file, read_table};
use erofs_fuse::error::Error;

/// Name of the process for `ps` and `pkill`, different from the names of the other processes.
const NAME: &std::ffi::CStr = c"erofs_unmount";

/// Starts the watcher before the mount is in the tree, with `null` as its output. The mount stays
/// as long as a process has the returned descriptor or a duplicate of it. When this returns,
/// signals to the process group of this process do not reach the watcher.
pub(crate) fn start(
    mut expected: ExpectedMount,
    null: &OwnedFd,
    auto_unmount: bool,
) -> Result<OwnedFd, Error> {
    let (end, held) = std::io::pipe().map_err(Error::std_io("pipe"))?;
    let wait = || {
        ChildProcess::begin(NAME, null);
        let _ = rustix::process::setsid();
        let _ = rustix::process::chdir("/");
        let mut unmounts = true;
        loop {
            let (pipe, mut said) = (rustix::stdio::stdin(), [0]);
            match rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut said)) {
                Ok(0) => return clean_up(&expected, unmounts).map_or(1, |()| 0),
                Ok(_) if said == MOUNTED => expected.made(),
                Ok(_) => unmounts = auto_unmount,
                Err(_) => return 1,
            }
        }
    };
    // This process does not wait for the watcher, which ends later and is reaped by init.
    let child = ChildProcess::fork(end.into(), &[null.as_raw_fd()], wait);
    child.map_err(Error::std_io("fork"))?.leave_group();
    Ok(held.into())
}

/// Message: the mount is in the tree.
const MOUNTED: [u8; 1] = *b"m";

/// Message: the handshake is complete.
const SERVED: [u8; 1] = *b"s";

/// Informs the watcher that the mount is in the tree.
pub(crate) fn is_mounted(held: &OwnedFd) {
    let _ = rustix::io::write(held, &MOUNTED);
}

/// Informs the watcher that the handshake is complete.
pub(crate) fn handshake_done(held: &OwnedFd) {
    let _ = rustix::io::write(held, &SERVED);
}

fn clean_up(expected: &ExpectedMount, unmounts: bool) -> Result<(), Error> {
    let ExpectedMount::Known(mounted) = expected else {
        expected.unmount_dead();
        return Ok(());
    };
    if mounted.id.find(&read_table()?).is_none() {
        return Ok(());
    }
    // A thread of a killed server may wait for a read that will never be answered.
    let aborted = abort_file(&mounted.id.device).and_then(|mut file| file.write_all(b"1"));
    if aborted.is_err() {
        let _ = mounted.force_abort();
    }
    match unmounts {
        true => mounted.detach(),
        false => Ok(()),
    }
}
