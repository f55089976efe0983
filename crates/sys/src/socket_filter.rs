//! A filter on what a socket receives, as a program of classic BPF (socket(7), SO_ATTACH_FILTER).

use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd};

/// One instruction.
#[derive(Clone, Copy, Debug)]
pub struct Instruction(libc::sock_filter);

impl Instruction {
    /// Loads the byte at offset `at` of the message; one that is shorter is dropped.
    pub fn load_byte(at: u32) -> Self {
        Self::new(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, at)
    }

    /// Loads the four bytes at offset `at`, the first of which is the most significant.
    pub fn load_word(at: u32) -> Self {
        Self::new(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, at)
    }

    /// Skips so many instructions unless what was loaded equals `value`.
    pub fn skip_unless(value: u32, instructions: u8) -> Self {
        let code = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        Self::new(code, instructions, value)
    }

    /// Ends the program: the message is received.
    pub fn accept() -> Self {
        Self::new(libc::BPF_RET | libc::BPF_K, 0, u32::MAX)
    }

    /// Ends the program: the message is dropped, and nobody is woken.
    pub fn drop() -> Self {
        Self::new(libc::BPF_RET | libc::BPF_K, 0, 0)
    }

    fn new(code: u32, jf: u8, k: u32) -> Self {
        // The codes are below 256.
        let code = code as u16;
        Self(libc::sock_filter { code, jt: 0, jf, k })
    }
}

/// From now on `socket` receives what `program` accepts.
///
/// # Errors
/// The kernel lacks filters, or refuses this one: it must end on every way, and have 4096
/// instructions at most.
pub fn attach(socket: impl AsFd, program: &[Instruction]) -> io::Result<()> {
    let mut program: Vec<_> = program.iter().map(|instruction| instruction.0).collect();
    let program = libc::sock_fprog {
        len: u16::try_from(program.len()).map_err(io::Error::other)?,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the option takes a `sock_fprog` of this size; its instructions live until the call
    // returns, and the kernel copies them.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
