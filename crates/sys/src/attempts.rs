//! Calls that a sandbox must refuse, for a test in which a server tries them.
//!
//! A call that is let through fails or does no harm, because its arguments refer to no memory, and
//! to descriptors and processes that do not exist. A filter decides before the kernel examines the
//! arguments, and returns EPERM.

use std::io;

use libc::*;

/// A system call to try.
#[derive(Clone, Copy, Debug)]
pub struct Attempt {
    /// The purpose of the call.
    pub name: &'static str,
    number: c_long,
    arguments: &'static [i64],
}

/// A number that is no valid descriptor or process.
const NONE: c_int = -1;
/// A process number beyond the largest (PID_MAX_LIMIT).
const ABSENT: c_int = 1 << 30;

const EXECUTABLE: c_int = PROT_READ | PROT_EXEC;
const FRESH: c_int = MAP_PRIVATE | MAP_ANONYMOUS;
/// IORING_REGISTER_FILES_UPDATE.
const REGISTER_FILES_UPDATE: c_int = 6;

/// Lists calls by number, first arguments (the others are 0) and name.
macro_rules! attempts {
    ($($number:ident($($argument:expr),*) $name:literal;)*) => {
        &[$(Attempt { name: $name, number: $number, arguments: &[$($argument as i64),*] }),*]
    };
}

/// All calls to try.
pub const ATTEMPTS: &[Attempt] = attempts! {
    SYS_execve() "run a program";
    SYS_execveat(NONE) "run an open program";
    SYS_socket(AF_UNIX, 1) "make a socket";
    SYS_connect(NONE) "connect to a socket";
    SYS_sendto(NONE) "send to an address";
    SYS_sendmsg(NONE) "send a message";
    SYS_kill(ABSENT) "signal a process";
    SYS_tgkill(ABSENT, ABSENT) "signal a thread";
    SYS_ptrace(PTRACE_ATTACH, ABSENT) "trace a process";
    SYS_process_vm_readv(ABSENT) "read a process";
    SYS_process_vm_writev(ABSENT) "write a process";
    SYS_pidfd_open(ABSENT) "open a process";
    SYS_pidfd_send_signal(NONE) "signal an open process";
    SYS_pidfd_getfd(NONE) "take a descriptor of a process";
    SYS_rt_sigqueueinfo(ABSENT) "queue a signal";
    SYS_rt_tgsigqueueinfo(ABSENT, ABSENT) "queue a signal of a thread";
    SYS_tkill(ABSENT) "signal any thread";
    SYS_prlimit64(ABSENT, RLIMIT_NOFILE) "limit a process";
    SYS_setpriority(PRIO_PGRP, ABSENT) "change the priority of a group";
    SYS_setpriority(PRIO_USER, ABSENT) "change the priority of a user";
    SYS_ioprio_set() "change the priority of reads";
    SYS_process_madvise(NONE) "advise on memory of a process";
    SYS_kcmp(ABSENT, ABSENT) "compare processes";
    SYS_mount() "mount";
    SYS_move_mount(NONE, 0, NONE) "move a mount";
    SYS_umount2() "unmount";
    SYS_chroot() "change the root";
    SYS_io_uring_setup(1) "make a ring";
    SYS_io_uring_register(NONE, REGISTER_FILES_UPDATE) "change a ring";
    SYS_mmap(0, 4096, EXECUTABLE, FRESH, NONE) "map executable memory";
    SYS_mprotect(0, 4096, EXECUTABLE) "make memory executable";
    SYS_memfd_create() "make an anonymous file";
    SYS_pwrite64(NONE) "write at a position";
    SYS_ftruncate(NONE) "cut a file";
    SYS_unlinkat(NONE) "remove a file";
    SYS_renameat2(NONE, 0, NONE) "rename a file";
    SYS_fchmod(NONE) "change a mode";
    SYS_setresuid() "change a user";
    SYS_capset() "change capabilities";
    SYS_unshare(CLONE_NEWUSER) "make a namespace";
    SYS_setns(NONE) "enter a namespace";
    SYS_bpf(NONE) "load a BPF program";
    SYS_perf_event_open() "count events";
    SYS_userfaultfd(NONE) "handle page faults";
    SYS_keyctl(NONE) "use a key";
};

impl Attempt {
    /// Tries the call. EPERM or EACCES means that the call was refused; anything else means that it
    /// was let through.
    ///
    /// # Errors
    /// The call was let through. The error is the one that the call returned, or one without a
    /// number if the call succeeded.
    pub fn is_refused(&self) -> Result<(), io::Error> {
        let argument = |at| self.arguments.get(at).copied().unwrap_or(0);
        let [a, b, c, d, e, f] = std::array::from_fn(argument);
        // SAFETY: see the head of the file: no memory is named, except for a new mapping that
        // nothing refers to and a range at address 0, where nothing is mapped.
        let outcome = unsafe { syscall(self.number, a, b, c, d, e, f) };
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            _ if outcome >= 0 => Err(io::Error::other("allowed")),
            Some(EPERM | EACCES) => Ok(()),
            _ => Err(error),
        }
    }
}
