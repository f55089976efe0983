//! The user of a process that root started.

use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Gid, Pid, Signal, Uid, geteuid, getpid, getppid, kill_process,
    parent_process_death_signal, set_dumpable_behavior, set_parent_process_death_signal,
};
use rustix::thread::{
    set_keep_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

/// `nobody` and `nogroup`, as the kernel and all distributions number them.
pub const NOBODY: u32 = 65534;

/// Inode number of the initial user namespace: PROC_USER_INIT_INO of the kernel.
const FIRST: u64 = 0xEFFF_FFFD;

/// Whether this process is in the initial user namespace.
pub fn in_first_namespace() -> bool {
    // If there is no /proc, the system is still starting, and no other namespaces exist yet.
    let namespace = std::fs::metadata("/proc/self/ns/user");
    namespace.map_or(true, |namespace| namespace.ino() == FIRST)
}

/// Changes the calling thread from root to `nobody` and `nogroup`, without further groups;
/// permitted capabilities stay. Root inside a user namespace keeps its ID, because it is already
/// unprivileged outside.
///
/// The process must have no other threads, because they would keep their IDs. `in_first_namespace`
/// is the result of [`in_first_namespace`], which a process without rights may not be able to
/// determine.
///
/// # Errors
/// Returns a one-line error; the process then stays root.
pub fn leave_root(in_first_namespace: bool) -> Result<(), String> {
    if !geteuid().is_root() || !in_first_namespace {
        return Ok(());
    }
    if !everyone_enters("/") {
        // Threads may read the CPU counts and the load at any time, from files that only root could
        // reach.
        return Err("only root may enter the root directory".into());
    }
    let parent = getppid();
    let signal = parent_process_death_signal().unwrap_or(None);
    become_nobody().map_err(|errno| errno.to_string())?;
    // The kernel clears the parent-death signal when the user changes.
    match signal {
        Some(signal) => end_with(parent, signal).map_err(|errno| errno.to_string()),
        None => Ok(()),
    }
}

fn everyone_enters(directory: &str) -> bool {
    rustix::fs::stat(directory).is_ok_and(|stat| stat.st_mode & 0o1 != 0)
}

/// Makes this process get the signal when its parent dies, as `setpriv --pdeathsig` does, or
/// immediately if the parent is already dead.
fn end_with(parent: Option<Pid>, signal: Signal) -> Result<(), Errno> {
    set_parent_process_death_signal(Some(signal))?;
    if getppid() != parent {
        kill_process(getpid(), signal)?;
    }
    Ok(())
}

fn become_nobody() -> Result<(), Errno> {
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    set_keep_capabilities(true)?;
    set_thread_groups(&[])?;
    set_thread_res_gid(group, group, group)?;
    set_thread_res_uid(user, user, user)?;
    set_keep_capabilities(false)?;
    // The kernel resets this attribute when the user changes.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
}
