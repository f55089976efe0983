//! seccomp: the system calls that serving needs, and no others.
//!
//! Any other call fails with EPERM rather than killing the server. An attacker gains nothing from
//! an error, while a call that a new C library makes, and that is missing below, costs a feature
//! instead of the mount. `clone3` fails with ENOSYS: a filter cannot see its flags, and the C
//! library then falls back to `clone`, whose flags it can.
//!
//! To add a call, add it below by its purpose. `strace -f -c` of a server shows which are used.

use std::collections::BTreeMap;

use libc::c_long;
use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// Rules for one call: any of them allows it; none at all allows it always.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

type Outcome<T> = Result<T, seccompiler::Error>;

/// FUSE_DEV_IOC_CLONE.
const FUSE_CLONE: u64 = 0x8004_e500;

/// Calls that are allowed with any arguments.
const ALWAYS: &[c_long] = &[
    // Requests and replies, the image, wakers, logs, and the mount helper's socket. Sockets are
    // written with write(2), which takes no address: a datagram socket could reach any other with
    // one.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_preadv2,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_fadvise64,
    libc::SYS_readahead,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_statx,
    libc::SYS_dup3,
    libc::SYS_close,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_bind,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_ppoll,
    libc::SYS_eventfd2,
    libc::SYS_futex,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_restart_syscall,
    // Threads of this process: creation, CPU, priority and exit.
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getcpu,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getattr,
    libc::SYS_getpriority,
    libc::SYS_setpriority,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // Memory.
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mlock2,
    libc::SYS_munlock,
    // Clocks and random numbers.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    // Detaching from the terminal and the initial working directory.
    libc::SYS_setsid,
    libc::SYS_chdir,
];

/// Older names of calls above, which libraries still use where they exist.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_epoll_wait,
    libc::SYS_poll,
    libc::SYS_dup2,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

const RING: &[c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Restricts the calling thread and those it makes.
pub(super) fn restrict(io_uring: bool) -> Result<(), String> {
    let describe = |error: seccompiler::Error| error.to_string();
    let arch = TargetArch::try_from(std::env::consts::ARCH)
        .map_err(|_| format!("not for {}", std::env::consts::ARCH))?;
    let filters = [
        allowed(io_uring, arch).map_err(describe)?,
        newer(arch).map_err(describe)?,
    ];
    // In this order: the second forbids to install another.
    let [allowed, newer] = filters;
    apply_filter(&newer).map_err(describe)?;
    apply_filter(&allowed).map_err(describe)
}

/// Lets everything pass but `clone3`.
fn newer(arch: TargetArch) -> Outcome<BpfProgram> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let absent = SeccompAction::Errno(Errno::NOSYS.raw_os_error().unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, absent, arch)?;
    Ok(BpfProgram::try_from(filter)?)
}

fn allowed(io_uring: bool, arch: TargetArch) -> Outcome<BpfProgram> {
    let mut rules = conditional()?;
    let ring: &[c_long] = if io_uring { RING } else { &[] };
    for call in ALWAYS.iter().chain(OLDER).chain(ring) {
        rules.insert(*call, Vec::new());
    }
    // The other filter answers this one, unless this one refuses it more severely.
    rules.insert(libc::SYS_clone3, Vec::new());
    let refused = SeccompAction::Errno(Errno::PERM.raw_os_error().unsigned_abs());
    let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, arch)?;
    Ok(BpfProgram::try_from(filter)?)
}

/// Calls that are allowed with some arguments only.
fn conditional() -> Outcome<Rules> {
    let open = |flags: u8| {
        clear(
            flags,
            (libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC) as u64,
        )
    };
    let no_exec = || clear(2, libc::PROT_EXEC as u64);
    let rules = [
        // For reading, and /dev/fuse for both.
        (libc::SYS_openat, vec![open(2)?]),
        // Limits are read, not set.
        (libc::SYS_prlimit64, vec![no_pointer(2)?]),
        (
            libc::SYS_prctl,
            vec![
                equal(0, libc::PR_SET_NAME as u64)?,
                equal(0, libc::PR_GET_NAME as u64)?,
            ],
        ),
        (libc::SYS_ioctl, vec![equal(1, FUSE_CLONE)?]),
        // A thread, not a process.
        (libc::SYS_clone, vec![set(0, libc::CLONE_THREAD as u64)?]),
        // A descriptor table for the thread that stores pages.
        (libc::SYS_unshare, vec![equal(0, libc::CLONE_FILES as u64)?]),
        (libc::SYS_mmap, vec![no_exec()?]),
        (libc::SYS_mprotect, vec![no_exec()?]),
        // The kernel's events about CPUs.
        (libc::SYS_socket, vec![device_events()?]),
        (libc::SYS_fcntl, descriptor_commands()?),
        // abort(3) sends a signal to its own thread.
        (
            libc::SYS_tgkill,
            vec![equal(0, u64::from(std::process::id()))?],
        ),
    ]
    .into_iter();
    // Other architectures never had it.
    #[cfg(target_arch = "x86_64")]
    let rules = rules.chain([(libc::SYS_open, vec![open(1)?])]);
    Ok(rules.collect())
}

/// A netlink socket for events of devices, and no other protocol of the kernel's.
fn device_events() -> Outcome<SeccompRule> {
    Ok(SeccompRule::new(vec![
        is(0, libc::AF_NETLINK as u64)?,
        is(2, libc::NETLINK_KOBJECT_UEVENT as u64)?,
    ])?)
}

/// Duplicates and flags. Others would lock files, seal memory, or have the kernel send signals to
/// other processes (F_SETOWN).
fn descriptor_commands() -> Outcome<Vec<SeccompRule>> {
    [
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
    ]
    .into_iter()
    .map(|command| equal(1, command as u64))
    .collect()
}

/// All bits of `mask` are 0. As below, of an argument of 32 bits: the kernel ignores the others.
fn clear(argument: u8, mask: u64) -> Outcome<SeccompRule> {
    rule(
        argument,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(mask),
        0,
    )
}

/// All bits of `mask` are 1.
fn set(argument: u8, mask: u64) -> Outcome<SeccompRule> {
    rule(
        argument,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(mask),
        mask,
    )
}

fn equal(argument: u8, value: u64) -> Outcome<SeccompRule> {
    Ok(SeccompRule::new(vec![is(argument, value)?])?)
}

fn is(argument: u8, value: u64) -> Outcome<SeccompCondition> {
    let (length, equal) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
    Ok(SeccompCondition::new(argument, length, equal, value)?)
}

fn no_pointer(argument: u8) -> Outcome<SeccompRule> {
    rule(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)
}

fn rule(
    argument: u8,
    length: SeccompCmpArgLen,
    comparison: SeccompCmpOp,
    value: u64,
) -> Outcome<SeccompRule> {
    let condition = SeccompCondition::new(argument, length, comparison, value)?;
    Ok(SeccompRule::new(vec![condition])?)
}
