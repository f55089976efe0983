//! Sends a query about a mount (described in [`erofs_fuse::queries`]). The server may be dead or
//! stopped, or belong to another user, so this code neither trusts the server nor waits for it
//! without a limit.

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use erofs_fuse::error::Error;
use erofs_fuse::queries::HEADER_BYTES;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sys::fuse_ioctl::{QUERY_BYTES, query};

use crate::mounting::{Turn, answer_within, top_mount};
use crate::outside::{only_holder, server_of};

/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Maximum size of a value, far more than counters and spans need: a server of another user may
/// claim any size.
const MOST_BYTES: usize = 64 << 20;

/// How many times the copy may be replaced by another program's query before this query fails.
const ATTEMPTS: usize = 16;

/// Gets the whole value of a query.
///
/// # Errors
/// Returns a one-line error if this is not an erofast mount, if it may not be queried, or if its
/// server is dead or does not answer.
pub(crate) fn get(mountpoint: &Path, number: u8) -> Result<Vec<u8>, Error> {
    let place = mountpoint.to_owned();
    let ask = move || {
        let turn = Turn::of(&place)?;
        let answer = get_whole(&place, number);
        turn.end();
        answer
    };
    let why = match answer_within(ANSWER, ask) {
        Ok(Ok(value)) => return Ok(value),
        Ok(Err(Errno::ACCESS)) if is_of_another_user(mountpoint) => {
            return Err(Error::Private(mountpoint.to_owned()));
        }
        Ok(Err(errno)) => reason(errno),
        Err(unanswered) => unanswered.reason(|| silent(mountpoint)),
    };
    Err(Error::mountpoint(mountpoint, why))
}

/// Whether the mount belongs to another user. The error alone does not prove that, because a server
/// may answer its own user, or root, with the same error.
fn is_of_another_user(mountpoint: &Path) -> bool {
    let mount = top_mount(mountpoint).ok().flatten();
    let user = rustix::process::getuid().as_raw();
    mount.is_some_and(|mount| mount.user_id.is_some_and(|owner| owner != user))
}

fn silent(mountpoint: &Path) -> String {
    let Some(mount) = top_mount(mountpoint).ok().flatten() else {
        return "its server does not answer".to_owned();
    };
    let server = mount
        .user_id
        .and_then(|user| server_of(&mount.device, user));
    let place = mountpoint.display();
    let remedy = match server {
        Some(server) if server.can_be_replaced => format!(": erofast upgrade {place} replaces it"),
        Some(_) => format!(": erofast umount {place} unmounts it"),
        None => ", and its mount helper cannot be found: erofast umount unmounts it".to_owned(),
    };
    let pid = server.map(|server| server.pid);
    match pid.or_else(|| only_holder(&mount.device)) {
        Some(pid) => {
            let pid = pid.as_raw_nonzero();
            format!("its server (process {pid}) does not answer{remedy}")
        }
        None => format!("its server does not answer{remedy}"),
    }
}

fn reason(errno: Errno) -> String {
    match errno {
        Errno::NOTTY | Errno::NOTDIR => "not the mount point of an erofast mount".to_owned(),
        Errno::AGAIN => "its daemon is starting or ending".to_owned(),
        Errno::BUSY => "its server has not answered an earlier query".to_owned(),
        Errno::NOTCONN => "its daemon is dead: run erofast umount".to_owned(),
        other => other.to_string(),
    }
}

fn get_whole(mountpoint: &Path, number: u8) -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(mountpoint, flags, Mode::empty())?;
    for _ in 0..ATTEMPTS {
        match get_copy(&root, number) {
            Err(Errno::STALE) => {}
            other => return other,
        }
    }
    Err(Errno::STALE)
}

fn get_copy(root: &impl AsFd, number: u8) -> Result<Vec<u8>, Errno> {
    let mut value = Vec::new();
    let mut id = 0_u64;
    loop {
        let mut bytes = Box::new([0; QUERY_BYTES]);
        bytes[..8].copy_from_slice(&id.to_ne_bytes());
        bytes[8..16].copy_from_slice(&(value.len() as u64).to_ne_bytes());
        query(root.as_fd(), number, &mut bytes)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let field = |from| u64::from_ne_bytes(std::array::from_fn(|i| bytes[from + i]));
        id = field(0);
        let left = usize::try_from(field(8)).map_err(|_| Errno::IO)?;
        let left = left.checked_sub(value.len()).ok_or(Errno::IO)?;
        if value.len() + left > MOST_BYTES {
            return Err(Errno::FBIG);
        }
        let part = left.min(QUERY_BYTES - HEADER_BYTES);
        value.extend(&bytes[HEADER_BYTES..HEADER_BYTES + part]);
        if part == left {
            return Ok(value);
        }
    }
}
