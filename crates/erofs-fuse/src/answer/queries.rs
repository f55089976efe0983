//! Queries about a mount, made by an ioctl on the mount's root: they need no socket and follow the
//! mount's own permissions.
//!
//! A value travels in parts; reading the first part takes a copy, so that all parts belong to the
//! same moment.
//!
//! | bytes | request | answer |
//! | --- | --- | --- |
//! | 0 to 7 | number of the copy; 0 makes a new one | number of the copy |
//! | 8 to 15 | first byte wanted | bytes of the whole value |
//! | 16 | | part of the value |

use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sys::fuse_ioctl::{QUERY_BYTES, query, query_command};
use sys::pi_mutex::PiMutex;

use crate::error::Error;
use crate::mounting::{answer_within, top_mount};
use crate::outside::{only_holder, server_of};

use crate::mounting::Turn;

/// Query number of the live counters, as JSON.
pub(crate) const COUNTERS: u8 = 1;
/// Query number of the trace spans.
pub(crate) const SPANS: u8 = 2;

/// How long a server may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

const HEADER_BYTES: usize = 16;

/// Far more than counters and spans need: a server of another user may claim any size.
const MOST_BYTES: usize = 64 << 20;

/// How often a copy may be replaced by another program's before that is an error.
const ATTEMPTS: usize = 16;

/// The daemon's side.
#[derive(Debug, Default)]
pub(crate) struct Queries {
    /// Guarded by its own lock: the latest copy and its number.
    copy: PiMutex<(u64, Vec<u8>)>,
}

impl Queries {
    /// Answers one call; `value` makes the value for the number of the query.
    pub(crate) fn answer<E: From<Errno>>(
        &self,
        command: u32,
        input: &[u8],
        room: usize,
        value: impl FnOnce(u8) -> Result<Vec<u8>, E>,
    ) -> Result<Vec<u8>, E> {
        let number = command as u8;
        if command != query_command(number) {
            return Err(Errno::NOTTY.into());
        }
        let field = |from: usize| {
            input
                .get(from..from + 8)?
                .try_into()
                .ok()
                .map(u64::from_ne_bytes)
        };
        let (wanted, offset) = field(0).zip(field(8)).ok_or(Errno::INVAL)?;
        // Made before the lock is taken, since it may take long.
        let fresh = (wanted == 0).then(|| value(number)).transpose()?;
        let mut copy = self.copy.lock();
        if let Some(fresh) = fresh {
            *copy = (copy.0 + 1, fresh);
        } else if wanted != copy.0 {
            return Err(Errno::STALE.into());
        }
        let (id, bytes) = &*copy;
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|offset| bytes.get(offset..));
        let rest = rest.ok_or(Errno::INVAL)?;
        let part = &rest[..rest.len().min(room.saturating_sub(HEADER_BYTES))];
        Ok([
            &id.to_ne_bytes()[..],
            &(bytes.len() as u64).to_ne_bytes(),
            part,
        ]
        .concat())
    }
}

/// The program's side: gets the whole value.
///
/// # Errors
/// One line: it is not an erofast mount, may not be queried, or its server is dead or does not
/// answer.
pub(crate) fn get(mountpoint: &Path, number: u8) -> Result<Vec<u8>, Error> {
    let place = mountpoint.to_owned();
    let ask = move || {
        let turn = Turn::of(&place)?;
        let answer = get_whole(&place, number);
        turn.end();
        answer
    };
    let why = match answer_within(ANSWER, ask) {
        Some(Ok(value)) => return Ok(value),
        Some(Err(Errno::ACCESS)) if is_of_another_user(mountpoint) => {
            let mountpoint = mountpoint.to_owned();
            return Err(Error::Private { mountpoint });
        }
        Some(Err(errno)) => reason(errno),
        None => silent(mountpoint),
    };
    Err(Error::mountpoint(mountpoint, why))
}

/// Whether the mount belongs to another user. A server may answer its own user, or root, with that
/// error too.
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
        None => ", and its mount helper is not to be found: erofast umount unmounts it".to_owned(),
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
        Errno::NOTTY | Errno::NOTDIR => "is not the mount point of an erofast mount".to_owned(),
        Errno::AGAIN => "its daemon starts or ends at this moment".to_owned(),
        Errno::BUSY => "its server does not answer an earlier question".to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(queries: &Queries, id: u64, offset: u64) -> Result<(u64, u64, Vec<u8>), Errno> {
        let input = [id.to_ne_bytes(), offset.to_ne_bytes()].concat();
        let value = |number| Ok::<_, Errno>(vec![number; 10]);
        let answer = queries.answer(query_command(3), &input, HEADER_BYTES + 4, value)?;
        let field = |from| u64::from_ne_bytes(std::array::from_fn(|i| answer[from + i]));
        Ok((field(0), field(8), answer[HEADER_BYTES..].to_vec()))
    }

    #[test]
    fn a_value_comes_in_parts_of_one_copy() {
        let queries = Queries::default();
        assert_eq!(ask(&queries, 0, 0), Ok((1, 10, vec![3; 4])));
        assert_eq!(ask(&queries, 1, 8), Ok((1, 10, vec![3; 2])));
        assert_eq!(ask(&queries, 0, 0).unwrap().0, 2);
        assert_eq!(ask(&queries, 1, 4), Err(Errno::STALE));
        assert_eq!(ask(&queries, 2, 11), Err(Errno::INVAL));
    }

    #[test]
    fn other_commands_are_none_of_ours() {
        let never = |_| -> Result<_, Errno> { panic!("not asked") };
        let tcgets = Queries::default().answer(0x5401, &[0; 16], 64, never);
        assert_eq!(tcgets, Err(Errno::NOTTY));
        let short = Queries::default().answer(query_command(1), &[0; 15], 64, never);
        assert_eq!(short, Err(Errno::INVAL));
    }
}
