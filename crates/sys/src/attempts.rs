//! Calls that a sandbox must refuse, tried for real by a server in a test.
//!
//! The arguments are such that a call which is let through fails or does no harm: it names no
//! memory, and descriptors and processes that are not there. A filter decides before the kernel
//! examines them, and says EPERM.

use std::io;

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// What it would be good for.
    pub name: &'static str,
    number: libc::c_long,
    arguments: [i64; 6],
}

const fn call(name: &'static str, number: libc::c_long, arguments: [i64; 6]) -> Attempt {
    Attempt {
        name,
        number,
        arguments,
    }
}

/// No descriptor, and no process.
const NONE: i64 = -1;
/// A process number beyond the largest (PID_MAX_LIMIT).
const ABSENT: i64 = 1 << 30;

const EXECUTABLE: i64 = (libc::PROT_READ | libc::PROT_EXEC) as i64;
const FRESH: i64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as i64;

/// All of them.
pub const ATTEMPTS: &[Attempt] = &[
    call("run a program", libc::SYS_execve, [0; 6]),
    call(
        "run an open program",
        libc::SYS_execveat,
        [NONE, 0, 0, 0, 0, 0],
    ),
    call(
        "make a socket",
        libc::SYS_socket,
        [libc::AF_UNIX as i64, 1, 0, 0, 0, 0],
    ),
    call(
        "connect to a socket",
        libc::SYS_connect,
        [NONE, 0, 0, 0, 0, 0],
    ),
    call(
        "send to an address",
        libc::SYS_sendto,
        [NONE, 0, 0, 0, 0, 0],
    ),
    call("send a message", libc::SYS_sendmsg, [NONE, 0, 0, 0, 0, 0]),
    call("signal a process", libc::SYS_kill, [ABSENT, 0, 0, 0, 0, 0]),
    call(
        "signal a thread",
        libc::SYS_tgkill,
        [ABSENT, ABSENT, 0, 0, 0, 0],
    ),
    call(
        "trace a process",
        libc::SYS_ptrace,
        [libc::PTRACE_ATTACH as i64, ABSENT, 0, 0, 0, 0],
    ),
    call(
        "read a process",
        libc::SYS_process_vm_readv,
        [ABSENT, 0, 0, 0, 0, 0],
    ),
    call(
        "write a process",
        libc::SYS_process_vm_writev,
        [ABSENT, 0, 0, 0, 0, 0],
    ),
    call(
        "open a process",
        libc::SYS_pidfd_open,
        [ABSENT, 0, 0, 0, 0, 0],
    ),
    call(
        "signal an open process",
        libc::SYS_pidfd_send_signal,
        [NONE, 0, 0, 0, 0, 0],
    ),
    call(
        "take a descriptor of a process",
        libc::SYS_pidfd_getfd,
        [NONE, 0, 0, 0, 0, 0],
    ),
    call(
        "queue a signal",
        libc::SYS_rt_sigqueueinfo,
        [ABSENT, 0, 0, 0, 0, 0],
    ),
    call(
        "queue a signal of a thread",
        libc::SYS_rt_tgsigqueueinfo,
        [ABSENT, ABSENT, 0, 0, 0, 0],
    ),
    call(
        "signal any thread",
        libc::SYS_tkill,
        [ABSENT, 0, 0, 0, 0, 0],
    ),
    call(
        "limit a process",
        libc::SYS_prlimit64,
        [ABSENT, libc::RLIMIT_NOFILE as i64, 0, 0, 0, 0],
    ),
    call(
        "change the priority of a group",
        libc::SYS_setpriority,
        [libc::PRIO_PGRP as i64, ABSENT, 0, 0, 0, 0],
    ),
    call(
        "change the priority of a user",
        libc::SYS_setpriority,
        [libc::PRIO_USER as i64, ABSENT, 0, 0, 0, 0],
    ),
    call("change the priority of reads", libc::SYS_ioprio_set, [0; 6]),
    call(
        "advise on memory of a process",
        libc::SYS_process_madvise,
        [NONE, 0, 0, 0, 0, 0],
    ),
    call(
        "compare processes",
        libc::SYS_kcmp,
        [ABSENT, ABSENT, 0, 0, 0, 0],
    ),
    call("mount", libc::SYS_mount, [0; 6]),
    call(
        "move a mount",
        libc::SYS_move_mount,
        [NONE, 0, NONE, 0, 0, 0],
    ),
    call("unmount", libc::SYS_umount2, [0; 6]),
    call("change the root", libc::SYS_chroot, [0; 6]),
    call("make a ring", libc::SYS_io_uring_setup, [1, 0, 0, 0, 0, 0]),
    // IORING_REGISTER_FILES_UPDATE
    call(
        "change a ring",
        libc::SYS_io_uring_register,
        [NONE, 6, 0, 0, 0, 0],
    ),
    call(
        "map executable memory",
        libc::SYS_mmap,
        [0, 4096, EXECUTABLE, FRESH, NONE, 0],
    ),
    call(
        "make memory executable",
        libc::SYS_mprotect,
        [0, 4096, EXECUTABLE, 0, 0, 0],
    ),
    call("make an anonymous file", libc::SYS_memfd_create, [0; 6]),
    call(
        "write at a position",
        libc::SYS_pwrite64,
        [NONE, 0, 0, 0, 0, 0],
    ),
    call("cut a file", libc::SYS_ftruncate, [NONE, 0, 0, 0, 0, 0]),
    call("remove a file", libc::SYS_unlinkat, [NONE, 0, 0, 0, 0, 0]),
    call(
        "rename a file",
        libc::SYS_renameat2,
        [NONE, 0, NONE, 0, 0, 0],
    ),
    call("change a mode", libc::SYS_fchmod, [NONE, 0, 0, 0, 0, 0]),
    call("change a user", libc::SYS_setresuid, [0; 6]),
    call("change capabilities", libc::SYS_capset, [0; 6]),
    call(
        "make a namespace",
        libc::SYS_unshare,
        [libc::CLONE_NEWUSER as i64, 0, 0, 0, 0, 0],
    ),
    call("enter a namespace", libc::SYS_setns, [NONE, 0, 0, 0, 0, 0]),
    call("load a BPF program", libc::SYS_bpf, [NONE, 0, 0, 0, 0, 0]),
    call("count events", libc::SYS_perf_event_open, [0; 6]),
    call(
        "handle page faults",
        libc::SYS_userfaultfd,
        [NONE, 0, 0, 0, 0, 0],
    ),
    call("use a key", libc::SYS_keyctl, [NONE, 0, 0, 0, 0, 0]),
];

impl Attempt {
    /// EPERM or EACCES: refused. Anything else has reached what it is for.
    ///
    /// # Errors
    /// What the call says; success is one too, of no number.
    pub fn is_refused(&self) -> Result<(), io::Error> {
        let [a, b, c, d, e, f] = self.arguments;
        // SAFETY: see the head of the file: no memory is named, but for a fresh mapping that
        // nothing refers to and a range at address 0, where nothing is mapped.
        let outcome = unsafe { libc::syscall(self.number, a, b, c, d, e, f) };
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            _ if outcome >= 0 => Err(io::Error::other("allowed")),
            Some(libc::EPERM | libc::EACCES) => Ok(()),
            _ => Err(error),
        }
    }
}
