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

/// Name and number of a call.
type Call = (&'static str, c_long);

/// Calls by their names in the C library.
macro_rules! calls {
    ($($(#[$when:meta])? $name:ident),* $(,)?) => {
        &[$($(#[$when])? (stringify!($name), libc::$name)),*]
    };
}

/// Calls that are allowed with any arguments.
const ALWAYS: &[Call] = calls![
    // Requests and replies, the image, wakers, logs, and the mount helper's socket. Sockets are
    // written with write(2), which takes no address: a datagram socket could reach any other with
    // one.
    SYS_read,
    SYS_readv,
    SYS_pread64,
    SYS_preadv2,
    SYS_write,
    SYS_writev,
    SYS_fadvise64,
    SYS_readahead,
    SYS_lseek,
    SYS_fstat,
    SYS_statx,
    SYS_dup3,
    SYS_close,
    SYS_recvfrom,
    SYS_recvmsg,
    // Waiting.
    SYS_epoll_create1,
    SYS_epoll_ctl,
    SYS_epoll_pwait,
    SYS_ppoll,
    SYS_eventfd2,
    SYS_futex,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_restart_syscall,
    // Threads of this process: creation, CPU, priority and exit.
    SYS_set_robust_list,
    SYS_rseq,
    SYS_gettid,
    SYS_getpid,
    SYS_getppid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_getcpu,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_sched_setaffinity,
    SYS_sched_getscheduler,
    SYS_sched_setscheduler,
    SYS_sched_getparam,
    SYS_sched_getattr,
    SYS_exit,
    SYS_exit_group,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    // Memory.
    SYS_brk,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_mlock2,
    SYS_munlock,
    // Clocks and random numbers.
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_getrandom,
    // Detaching from the terminal.
    SYS_setsid,
];

/// Older names of calls above, which libraries still use where they exist.
#[cfg(target_arch = "x86_64")]
const OLDER: &[Call] = calls![SYS_epoll_wait, SYS_poll, SYS_dup2, SYS_time, SYS_arch_prctl,];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[Call] = &[];

/// Calls that are allowed with some arguments only, for the page that lists them.
#[cfg(test)]
const CONDITIONAL: &[Call] = calls![
    SYS_openat,
    SYS_prlimit64,
    SYS_getpriority,
    SYS_setpriority,
    SYS_prctl,
    SYS_ioctl,
    SYS_clone,
    SYS_clone3,
    SYS_unshare,
    SYS_mmap,
    SYS_mprotect,
    SYS_fcntl,
    SYS_tgkill,
    SYS_sched_setattr,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    #[cfg(target_arch = "x86_64")]
    SYS_open,
];

/// IORING_REGISTER_FILES and IORING_REGISTER_ENABLE_RINGS: what a thread does with a ring that was
/// made, and restricted, before.
const RING_OPERATIONS: [u64; 2] = [2, 12];

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
    let refused = SeccompAction::Errno(Errno::PERM.raw_os_error().unsigned_abs());
    let filter = SeccompFilter::new(rules(io_uring)?, refused, SeccompAction::Allow, arch)?;
    Ok(BpfProgram::try_from(filter)?)
}

fn rules(io_uring: bool) -> Outcome<Rules> {
    let mut rules = conditional()?;
    for (_, number) in ALWAYS.iter().chain(OLDER) {
        rules.insert(*number, Vec::new());
    }
    if io_uring {
        rules.insert(libc::SYS_io_uring_enter, Vec::new());
        let operations = RING_OPERATIONS.map(|number| equal(1, number));
        let operations = operations.into_iter().collect::<Outcome<_>>()?;
        rules.insert(libc::SYS_io_uring_register, operations);
    }
    // The other filter answers this one, unless this one refuses it more severely.
    rules.insert(libc::SYS_clone3, Vec::new());
    Ok(rules)
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
        // Limits of this process are read, not set.
        (libc::SYS_prlimit64, vec![own_limit_read()?]),
        // Of a thread, not of all processes of a group or a user.
        (
            libc::SYS_getpriority,
            vec![equal(0, libc::PRIO_PROCESS as u64)?],
        ),
        (
            libc::SYS_setpriority,
            vec![equal(0, libc::PRIO_PROCESS as u64)?],
        ),
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
        // The slice of a thread.
        (libc::SYS_sched_setattr, vec![equal(2, 0)?]),
        (libc::SYS_mmap, vec![no_exec()?]),
        (libc::SYS_mprotect, vec![no_exec()?]),
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

/// Duplicates, flags, and reading seals. Others would lock files, seal memory, or have the kernel
/// send signals to other processes (F_SETOWN).
fn descriptor_commands() -> Outcome<Vec<SeccompRule>> {
    [
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
        libc::F_GET_SEALS,
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

fn own_limit_read() -> Outcome<SeccompRule> {
    let (length, equal) = (SeccompCmpArgLen::Qword, SeccompCmpOp::Eq);
    let no_new_one = SeccompCondition::new(2, length, equal, 0)?;
    Ok(SeccompRule::new(vec![is(0, 0)?, no_new_one])?)
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Names in backquotes in one column of the table below a line of docs/sandbox.md.
    fn listed(begin: &str, column: usize) -> BTreeSet<String> {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sandbox.md");
        let page = std::fs::read_to_string(page).unwrap();
        let after = page.split_once(begin).unwrap().1;
        let rows = after.lines().skip_while(|line| !line.starts_with('|'));
        let rows = rows.take_while(|line| line.starts_with('|'));
        let cells = rows.filter_map(|row| row.split('|').nth(column).map(str::to_owned));
        cells
            .flat_map(|cell| {
                let names = cell.split('`').skip(1).step_by(2);
                names.map(str::to_owned).collect::<Vec<_>>()
            })
            .collect()
    }

    fn names(calls: &[&[Call]]) -> BTreeSet<String> {
        let calls = calls.concat().into_iter();
        calls
            .map(|(name, _)| name.trim_start_matches("SYS_").to_owned())
            .collect()
    }

    /// The page is that of x86-64, which has all calls of the others.
    #[test]
    fn the_page_about_the_sandbox_lists_the_calls_of_the_filter() {
        let of_page = [listed("With any", 2), listed("With some", 1)];
        let of_filter = [names(&[ALWAYS, OLDER]), names(&[CONDITIONAL])];
        for (page, filter) in of_page.iter().zip(&of_filter) {
            let missing: Vec<_> = filter.difference(page).collect();
            assert!(missing.is_empty(), "not on the page: {missing:?}");
            let extra: Vec<_> = page.difference(filter).collect();
            let other = cfg!(not(target_arch = "x86_64"));
            assert!(extra.is_empty() || other, "not in the filter: {extra:?}");
        }
    }

    #[test]
    fn no_call_is_allowed_that_is_in_no_list() {
        let known: BTreeSet<i64> = [ALWAYS, OLDER, CONDITIONAL]
            .concat()
            .into_iter()
            .map(|(_, number)| number)
            .collect();
        let allowed: BTreeSet<i64> = rules(true).unwrap().into_keys().collect();
        assert_eq!(allowed, known);
        let ring = [libc::SYS_io_uring_enter, libc::SYS_io_uring_register];
        let without: BTreeSet<i64> = rules(false).unwrap().into_keys().collect();
        assert!(ring.iter().all(|call| !without.contains(call)));
        assert_eq!(without.len() + ring.len(), allowed.len());
    }
}
