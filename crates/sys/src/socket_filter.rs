//! Filters the packets that a socket receives, with a classic BPF program (socket(7),
//! SO_ATTACH_FILTER).

use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd};

use crate::checked;

/// One instruction, from linux/filter.h.
pub use libc::sock_filter as Instruction;

/// Makes `socket` receive only packets that `program` accepts.
///
/// # Errors
/// The kernel lacks filters, or refuses this one: every path through it must end, and it may have
/// at most 4096 instructions.
pub fn attach(socket: impl AsFd, program: &mut [Instruction]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the option takes a `sock_fprog` of this size; its instructions live until the call
    // returns, and the kernel copies them.
    checked(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    })
    .map(drop)
}
