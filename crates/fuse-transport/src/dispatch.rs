//! Dispatches a request by its opcode.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::filesystem::{DECLINED, Failure, Filesystem, Wait};
use crate::reply::{DirectoryReply, ReadReply, Reply, Seek};
use crate::request::Request;
use crate::request_info::{Caller, Seen};
use crate::wire::{
    AttrOut, EntryOut, IoctlIn, IoctlOut, LseekIn, Opcode, ReadIn, Treatment, XattrIn,
};

/// Longest target of a symbolic link that the kernel accepts.
const LONGEST_LINK: usize = 4095;

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// Nothing is sent.
    Silent,
    /// The content of the reply is sent.
    Reply,
    /// An error is sent.
    Error(Errno),
}

impl Answer {
    /// Whether the answer counts as a failure. Programs and the kernel routinely ask for names,
    /// attributes, holes and operations that do not exist; their absence is not a failure. Nor is
    /// declined read-ahead, because the kernel requests those pages again.
    pub(crate) fn is_failure(self) -> bool {
        const ROUTINE: [Errno; 10] = [
            Errno::NOENT,
            Errno::NODATA,
            Errno::NOSYS,
            Errno::NOTTY,
            Errno::NXIO,
            Errno::OPNOTSUPP,
            Errno::RANGE,
            Errno::ROFS,
            Errno::ACCESS,
            DECLINED,
        ];
        matches!(self, Answer::Error(errno) if !ROUTINE.contains(&errno))
    }
}

/// Answers one request; an error means that the request is deferred. A panic of the filesystem
/// becomes EIO, so that no program waits forever.
pub(crate) fn answer(
    filesystem: &dyn Filesystem,
    request: &Request<'_>,
    reply: &mut Reply<'_>,
    caller: Caller,
) -> Result<Answer, Wait> {
    let answer = decide(filesystem, request, reply, caller)?;
    if filesystem.watches() {
        filesystem.seen(&seen(request, answer, reply, caller));
    }
    Ok(answer)
}

fn seen<'r>(request: &Request<'r>, answer: Answer, reply: &Reply<'_>, caller: Caller) -> Seen<'r> {
    use Opcode::{Getxattr, Lookup, Read, Readdir, Readdirplus};
    let (header, kind) = (&request.header, request.opcode);
    let entry = || EntryOut::ref_from_prefix(reply.bytes()).ok();
    let range = || request.fixed::<ReadIn>().ok().map(|r| (r.offset, r.size));
    Seen {
        kind: kind.map_or("unknown", Opcode::label),
        unique: header.unique,
        node: header.nodeid,
        caller,
        name: match kind {
            Some(Lookup | Getxattr) => request.name().ok(),
            _ => None,
        },
        range: match kind {
            Some(Read | Readdir | Readdirplus) => range(),
            _ => None,
        },
        error: match answer {
            Answer::Error(errno) => Some(errno),
            // The kernel takes node 0 to mean that the name does not exist, and caches that.
            _ if kind == Some(Lookup) && entry().is_some_and(|(it, _)| it.nodeid == 0) => {
                Some(Errno::NOENT)
            }
            _ => None,
        },
    }
}

fn decide(
    filesystem: &dyn Filesystem,
    request: &Request<'_>,
    reply: &mut Reply<'_>,
    caller: Caller,
) -> Result<Answer, Wait> {
    let Some(opcode) = request.opcode else {
        return Ok(Answer::Error(Errno::NOSYS));
    };
    Ok(match opcode.treatment() {
        Treatment::Unsupported => Answer::Error(Errno::NOSYS),
        Treatment::ReadOnly => Answer::Error(Errno::ROFS),
        Treatment::Ioctl if !is_of_directory(request) => Answer::Error(Errno::NOTTY),
        Treatment::Agreed => Answer::Reply,
        Treatment::Silent => Answer::Silent,
        Treatment::Ioctl | Treatment::Served => {
            // The reply is dropped after a panic, so nothing sees it half finished.
            let serve = || serve(filesystem, opcode, request, reply, caller);
            match catch_unwind(AssertUnwindSafe(serve)) {
                Ok(Ok(())) => Answer::Reply,
                Ok(Err(Failure::Error(errno))) => Answer::Error(errno),
                Ok(Err(Failure::Deferred(wait))) => return Err(wait),
                Err(_) => Answer::Error(Errno::IO),
            }
        }
    })
}

fn is_of_directory(request: &Request<'_>) -> bool {
    let ioctl = request.fixed::<IoctlIn>();
    ioctl.is_ok_and(|ioctl| ioctl.flags & IoctlIn::DIRECTORY != 0)
}

fn serve(
    filesystem: &dyn Filesystem,
    opcode: Opcode,
    request: &Request<'_>,
    reply: &mut Reply<'_>,
    caller: Caller,
) -> Result<(), Failure> {
    let node = request.header.nodeid;
    let lasting = filesystem.lasting();
    match opcode {
        Opcode::Lookup => {
            let found = filesystem.lookup(caller, node, request.name()?)?;
            let entry = found.map_or_else(
                || EntryOut::absent(lasting),
                |f| EntryOut::found(f.node, f.attr, lasting),
            );
            put(reply, &entry)?;
        }
        Opcode::Getattr => {
            let attributes = AttrOut {
                attr_valid: lasting,
                attr: filesystem.attributes(caller, node)?,
                ..AttrOut::default()
            };
            put(reply, &attributes)?;
        }
        Opcode::Readlink => {
            let target = filesystem.read_link(caller, node)?;
            let fits = target.len() <= LONGEST_LINK && reply.push(&target);
            if !fits {
                return Err(Errno::NAMETOOLONG.into());
            }
        }
        Opcode::Read => {
            let read = sized(request, reply)?;
            let declines = || filesystem.declines(caller, node, read.offset, read.size);
            if read.is_for_page_cache() && !caller.repeats && declines() {
                return Err(DECLINED.into());
            }
            filesystem.read(caller, node, read.offset, &mut ReadReply::new(reply))?;
        }
        Opcode::Readdir | Opcode::Readdirplus => {
            let read = sized(request, reply)?;
            let plus = (opcode == Opcode::Readdirplus).then_some(lasting);
            let mut list = DirectoryReply::new(reply, plus);
            filesystem.read_directory(caller, node, read.offset, &mut list)?;
        }
        Opcode::Getxattr => {
            let wanted = request.fixed::<XattrIn>()?.size;
            let value = filesystem
                .xattr(caller, node, request.name()?)?
                .ok_or(Errno::NODATA)?;
            put_value(reply, wanted, &value)?;
        }
        Opcode::Listxattr => {
            let wanted = request.fixed::<XattrIn>()?.size;
            let names = filesystem.xattr_names(caller, node)?;
            // Each name ends with a zero byte.
            let names = names.iter().flat_map(|name| name.iter().chain(&[0]));
            put_value(reply, wanted, &names.copied().collect::<Vec<u8>>())?;
        }
        Opcode::Statfs => put(reply, &filesystem.statfs()?)?,
        Opcode::Lseek => {
            let seek = request.fixed::<LseekIn>()?;
            // SEEK_DATA and SEEK_HOLE of lseek(2).
            let what = match seek.whence {
                3 => Seek::Data,
                4 => Seek::Hole,
                _ => return Err(Errno::INVAL.into()),
            };
            put(reply, &filesystem.seek(caller, node, seek.offset, what)?)?;
        }
        Opcode::Ioctl => {
            let ioctl = request.fixed::<IoctlIn>()?;
            let room = ioctl.out_size as usize;
            let output = filesystem.directory_ioctl(caller, node, ioctl.cmd, request.rest, room)?;
            put(reply, &IoctlOut::default())?;
            let fits = output.len() <= room && reply.push(&output);
            if !fits {
                return Err(Errno::OVERFLOW.into());
            }
        }
        // A second INIT; the first is the handshake.
        _ => return Err(Errno::INVAL.into()),
    }
    Ok(())
}

fn put(reply: &mut Reply<'_>, value: &(impl IntoBytes + Immutable)) -> Result<(), Errno> {
    let fits = reply.push(value.as_bytes());
    fits.then_some(()).ok_or(Errno::INVAL)
}

/// Returns the fixed part of a read request, and limits the reply to the requested size.
fn sized(request: &Request<'_>, reply: &mut Reply<'_>) -> Result<ReadIn, Errno> {
    let read = request.fixed::<ReadIn>()?;
    if !reply.limit(read.size as usize) || read.offset > i64::MAX as u64 {
        return Err(Errno::INVAL);
    }
    Ok(read)
}

/// Replies with the value, or with its length if `wanted` is 0; ERANGE if the value is longer than
/// `wanted`.
fn put_value(reply: &mut Reply<'_>, wanted: u32, value: &[u8]) -> Result<(), Errno> {
    if wanted == 0 {
        // `fuse_getxattr_out`: the length, and four unused bytes.
        return put(reply, &[value.len() as u32, 0]);
    }
    let fits = value.len() <= wanted as usize && reply.push(value);
    fits.then_some(()).ok_or(Errno::RANGE)
}

#[cfg(test)]
mod tests;
