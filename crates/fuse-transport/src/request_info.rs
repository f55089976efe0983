//! Information about a request, for the filesystem.

use rustix::io::Errno;

use crate::wire::{InHeader, Opcode};

/// The process that sent a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Process ID; 0 outside the daemon's PID namespace, and for read-ahead.
    pub pid: u32,
    /// When a thread took the request, in ns of CLOCK_MONOTONIC.
    pub taken_ns: u64,
    /// Whether the request has been tried before, and has since waited for the data that it lacked.
    pub repeats: bool,
}

impl Caller {
    pub(crate) fn new(header: &InHeader, taken_ns: u64, repeats: bool) -> Self {
        Self {
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            taken_ns,
            repeats,
        }
    }
}

/// A request and its result, for logs.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'r> {
    /// Name of the request's opcode; "unknown" if the opcode is not known.
    pub kind: &'static str,
    /// The request's number.
    pub unique: u64,
    /// The node that the request concerns.
    pub node: u64,
    /// The process that sent the request.
    pub caller: Caller,
    /// The name that the request carries, if any.
    pub name: Option<&'r [u8]>,
    /// Offset and size of a read.
    pub range: Option<(u64, u32)>,
    /// The error in the answer; ENOENT for a name that does not exist.
    pub error: Option<Errno>,
}

/// A served request, with times of CLOCK_MONOTONIC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// The request's opcode; `None` if it is not known.
    pub opcode: Option<Opcode>,
    /// The kernel's number of the request.
    pub unique: u64,
    /// Time when a thread took the request.
    pub taken_ns: u64,
    /// Time when the filesystem had produced the answer.
    pub answered_ns: u64,
    /// Time when the reply was written to the device or put into the ring.
    pub sent_ns: u64,
    /// Bytes of the reply.
    pub bytes: usize,
}
