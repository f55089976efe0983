//! The system calls that serving a mount needs; all others are refused.
//!
//! To allow a call, add it to the list for its purpose below. `strace -f -c` of a server shows
//! which calls it uses.

use libc::c_long;

use super::filter::Argument::{self, Has, Is, Lacks, Null};
use super::filter::{Call, Filter, Outcome};

/// A call's name in the C library, and its number.
type Named = (&'static str, c_long);

/// Lists calls by their names in the C library.
macro_rules! calls {
    ($($name:ident)*) => { &[$((stringify!($name), libc::$name)),*] };
}

/// Calls that are allowed with any arguments.
const ALWAYS: &[&[Named]] = &[
    // Requests and replies, the image, wakers, logs, and the mount helper's socket. Sockets are
    // written with write(2), which takes no address: a call with an address could reach any other
    // datagram socket.
    calls! {
        SYS_read SYS_readv SYS_pread64 SYS_preadv2 SYS_write SYS_writev SYS_fadvise64
        SYS_readahead SYS_lseek SYS_fstat SYS_statx SYS_dup3 SYS_close SYS_recvfrom SYS_recvmsg
    },
    // Waiting.
    calls! {
        SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_ppoll SYS_eventfd2 SYS_futex
        SYS_nanosleep SYS_clock_nanosleep SYS_restart_syscall
    },
    // Threads of this process: creation, CPU, priority and exit.
    calls! {
        SYS_set_robust_list SYS_rseq SYS_gettid SYS_getpid SYS_getppid SYS_getuid SYS_geteuid
        SYS_getgid SYS_getegid SYS_getcpu SYS_sched_yield SYS_sched_getaffinity
        SYS_sched_setaffinity SYS_sched_getscheduler SYS_sched_setscheduler SYS_sched_getparam
        SYS_sched_getattr SYS_exit SYS_exit_group SYS_rt_sigaction SYS_rt_sigprocmask
        SYS_rt_sigreturn SYS_sigaltstack
    },
    // Memory.
    calls! { SYS_brk SYS_munmap SYS_mremap SYS_madvise SYS_mlock2 SYS_munlock },
    // Clocks and random numbers.
    calls! { SYS_clock_gettime SYS_clock_getres SYS_gettimeofday SYS_getrandom },
    // Detaching from the terminal.
    calls! { SYS_setsid },
    // Older equivalents of the calls above, which libraries still use on architectures that have
    // them.
    #[cfg(target_arch = "x86_64")]
    calls! { SYS_epoll_wait SYS_poll SYS_dup2 SYS_time SYS_arch_prctl },
];

/// A call and its rules ([`Call`]).
type Conditional = (Named, Vec<Vec<Argument>>);

macro_rules! conditional {
    ($($(#[$when:meta])? $name:ident $([$($kind:ident($at:literal $(, $value:expr)?)),+])*;)*) => {
        vec![$(
            $(#[$when])?
            (
                (stringify!($name), libc::$name),
                vec![$(vec![$($kind($at $(, $value as u64)?)),+]),*],
            )
        ),*]
    };
}

/// Flags of openat(2) that are refused: writing only, creating, truncating.
const WRITES: i32 = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;

/// FUSE_DEV_IOC_CLONE.
const FUSE_CLONE: u64 = 0x8004_e500;

/// Calls that are allowed only with some arguments.
fn conditional() -> Vec<Conditional> {
    conditional! {
        // Files are opened for reading, and /dev/fuse for reading and writing.
        SYS_openat [Lacks(2, WRITES)];
        // Other architectures never had this call.
        #[cfg(target_arch = "x86_64")]
        SYS_open [Lacks(1, WRITES)];
        // Reads limits of this process; cannot set them.
        SYS_prlimit64 [Is(0, 0), Null(2)];
        // Only for a thread, not for all processes of a group or a user.
        SYS_getpriority [Is(0, libc::PRIO_PROCESS)];
        SYS_setpriority [Is(0, libc::PRIO_PROCESS)];
        SYS_prctl [Is(0, libc::PR_SET_NAME)] [Is(0, libc::PR_GET_NAME)];
        SYS_ioctl [Is(1, FUSE_CLONE)];
        // Creates a thread, not a process.
        SYS_clone [Has(0, libc::CLONE_THREAD)];
        // Allowed here, so that the other filter can refuse it with ENOSYS.
        SYS_clone3;
        // Gives a thread that stores pages its own descriptor table.
        SYS_unshare [Is(0, libc::CLONE_FILES)];
        // The scheduling slice of a thread.
        SYS_sched_setattr [Is(2, 0)];
        SYS_mmap [Lacks(2, libc::PROT_EXEC)];
        SYS_mprotect [Lacks(2, libc::PROT_EXEC)];
        // Duplicates descriptors, handles their flags, and reads seals. Other commands would lock
        // files, seal memory, or make the kernel send signals to other processes (F_SETOWN).
        SYS_fcntl [Is(1, libc::F_DUPFD_CLOEXEC)] [Is(1, libc::F_GETFD)] [Is(1, libc::F_SETFD)]
            [Is(1, libc::F_GETFL)] [Is(1, libc::F_SETFL)] [Is(1, libc::F_GET_SEALS)];
        // abort(3) sends a signal to its own thread.
        SYS_tgkill [Is(0, std::process::id())];
    }
}

/// Calls that a thread of a mount over io_uring makes on a ring that was created and restricted
/// earlier. The numbers are IORING_REGISTER_FILES and IORING_REGISTER_ENABLE_RINGS.
fn of_rings() -> Vec<Conditional> {
    conditional! {
        SYS_io_uring_enter;
        SYS_io_uring_register [Is(1, 2)] [Is(1, 12)];
    }
}

/// Calls that a companion needs in addition to those of a server. The companion is a client of the
/// mount: it lists directories and resolves names. Landlock decides what openat2 may open.
const OF_COMPANION: &[Named] = calls! {
    SYS_openat2 SYS_newfstatat SYS_readlinkat SYS_getdents64 SYS_pwrite64
};

pub(super) fn of_server(io_uring: bool) -> Outcome<Filter> {
    let rings = if io_uring { of_rings() } else { Vec::new() };
    Filter::allowing(always(ALWAYS.concat()).chain(with_rules(rings)))
}

pub(super) fn of_companion() -> Outcome<Filter> {
    let calls = [&ALWAYS.concat(), OF_COMPANION].concat();
    Filter::allowing(always(calls).chain(with_rules(Vec::new())))
}

/// Calls that are allowed with any arguments.
fn always(calls: Vec<Named>) -> impl Iterator<Item = Call> {
    calls.into_iter().map(|(_, number)| (number, Vec::new()))
}

/// Calls that are allowed only with some arguments: a server's calls and `more`.
fn with_rules(more: Vec<Conditional>) -> impl Iterator<Item = Call> {
    let calls = conditional().into_iter().chain(more);
    calls.map(|((_, number), rules)| (number, rules))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Extracts the names in backquotes from one column of the table that follows the line `begin`
    /// in docs/sandbox.md.
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

    fn names(calls: impl IntoIterator<Item = Named>) -> BTreeSet<String> {
        let names = calls.into_iter().map(|(name, _)| name);
        names
            .map(|name| name.trim_start_matches("SYS_").to_owned())
            .collect()
    }

    /// The page describes x86-64, which has all calls of the other architectures.
    #[test]
    fn the_page_about_the_sandbox_lists_the_calls_of_the_filter() {
        let of_page = [listed("With any", 2), listed("With some", 1)];
        let conditional = conditional().into_iter().chain(of_rings());
        let of_filter = [
            names(ALWAYS.concat()),
            names(conditional.map(|(call, _)| call)),
        ];
        for (page, filter) in of_page.iter().zip(&of_filter) {
            let missing: Vec<_> = filter.difference(page).collect();
            assert!(missing.is_empty(), "not on the page: {missing:?}");
            let extra: Vec<_> = page.difference(filter).collect();
            let other = cfg!(not(target_arch = "x86_64"));
            assert!(extra.is_empty() || other, "not in the filter: {extra:?}");
        }
    }

    #[test]
    fn the_page_lists_what_a_companion_may_call_besides() {
        let of_page = listed("except those for rings, and also:", 1);
        assert_eq!(of_page, names(OF_COMPANION.iter().copied()));
    }

    #[test]
    fn rings_are_allowed_over_io_uring_only() {
        let allowed = |io_uring| BTreeSet::from_iter(of_server(io_uring).unwrap().calls());
        let more: Vec<_> = allowed(true).difference(&allowed(false)).copied().collect();
        assert_eq!(
            more,
            [libc::SYS_io_uring_enter, libc::SYS_io_uring_register]
        );
    }
}
