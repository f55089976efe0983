//! Scheduling policy of one thread: the calls that rustix lacks.
//!
//! The calls are made by number, because musl's functions of these names only return ENOSYS.

use std::io;
use std::os::unix::process::CommandExt;
use std::os::unix::thread::JoinHandleExt;
use std::process::Command;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::checked;

/// The shortest slice that the kernel grants to an ordinary thread.
pub const SHORT_SLICE: Duration = Duration::from_micros(100);

/// SCHED_FLAG_RESET_ON_FORK.
const RESET_ON_FORK: u64 = 1;

/// The policies that workers use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// `SCHED_FIFO` with this priority, 1 to 99.
    Fifo(u8),
    /// `SCHED_OTHER`; its nice value is separate (`getpriority`).
    Other,
    /// Any other policy, by number.
    Unknown(i32),
}

/// Sets the policy of thread `tid`, which may belong to any process that the caller may change; 0
/// means the calling thread.
///
/// Children of the thread start with the ordinary policy (`SCHED_RESET_ON_FORK`): a program run by
/// a real-time worker must not be real-time too. The flag stays set after a return to `Other`,
/// since only a privileged thread may clear it.
pub fn set_policy(tid: i32, policy: Policy) -> io::Result<()> {
    let (number, priority) = match policy {
        Policy::Fifo(priority) => (libc::SCHED_FIFO, libc::c_int::from(priority)),
        Policy::Other => (libc::SCHED_OTHER, 0),
        Policy::Unknown(_) => return Err(io::ErrorKind::InvalidInput.into()),
    };
    set_scheduler(tid, number | libc::SCHED_RESET_ON_FORK, priority)
}

/// struct sched_attr, in its first version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Makes `thread` real-time with the same priority, if the calling thread is real-time. A new
/// thread starts with the ordinary policy (see [`set_policy`]), and on a busy machine it would have
/// to wait for a CPU before it could raise its own priority.
pub fn share_priority<T>(thread: &JoinHandle<T>) -> io::Result<()> {
    let Policy::Fifo(priority) = policy(0)? else {
        return Ok(());
    };
    // SAFETY: the structure holds plain numbers, some of which exist only in certain C libraries.
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = priority.into();
    let number = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the thread was not joined, since its handle exists, so the C library knows it; the
    // parameter is only read.
    let result = unsafe {
        let thread = thread.as_pthread_t() as libc::pthread_t;
        libc::pthread_setschedparam(thread, number, &raw const parameter)
    };
    match result {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Gives thread `tid` the ordinary policy, this nice value and [`SHORT_SLICE`]. A thread with a
/// short slice runs before threads with longer slices when it wakes, but gets no more CPU time than
/// they do. Since Linux 6.12 any user may shorten the slices of their own threads. Children start
/// with the default slice. The slice survives a change of the policy.
///
/// # Errors
/// `Unsupported` if the kernel has no slices; the thread still gets the nice value.
pub fn set_short_slice(tid: i32, nice: i32) -> io::Result<()> {
    set_slice(tid, nice, SHORT_SLICE)?;
    match has_short_slice(tid)? {
        true => Ok(()),
        false => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Gives thread `tid` the ordinary policy, this nice value and the default slice.
pub fn end_short_slice(tid: i32, nice: i32) -> io::Result<()> {
    set_slice(tid, nice, Duration::ZERO)
}

fn set_slice(tid: i32, nice: i32, slice: Duration) -> io::Result<()> {
    let wanted = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: RESET_ON_FORK,
        nice,
        runtime: slice.as_nanos() as u64,
        ..Attributes::default()
    };
    // SAFETY: the structure is as long as it says, and only read.
    checked(unsafe { libc::syscall(libc::SYS_sched_setattr, tid, &raw const wanted, 0) }).map(drop)
}

/// The real-time policy and priority that a thread had before [`lead`] raised it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inherited {
    /// `SCHED_FIFO` or `SCHED_RR`.
    pub policy: i32,
    /// 1 to 98.
    pub priority: i32,
}

/// Raises the calling thread, if it is real-time, above the children that it will start: a child of
/// the same priority that never sleeps would keep the thread off its CPU forever. Returns the
/// policy for the children, or `None` if the thread is not real-time.
pub fn lead() -> io::Result<Option<Inherited>> {
    /// The highest priority that leaves room for a higher one.
    const MOST: i32 = 98;
    let found = attributes(0)?;
    let policy = found.policy as i32;
    if ![libc::SCHED_FIFO, libc::SCHED_RR].contains(&policy) {
        return Ok(None);
    }
    let priority = (found.priority as i32).min(MOST);
    set_scheduler(0, policy, priority + 1)?;
    Ok(Some(Inherited { policy, priority }))
}

impl Inherited {
    /// Makes `command` start with this policy and priority.
    pub fn give(self, command: &mut Command) {
        // SAFETY: between fork and exec one system call is made; nothing is allocated and no lock
        // is taken.
        unsafe { command.pre_exec(move || set_scheduler(0, self.policy, self.priority)) };
    }
}

/// Sets the policy and priority of thread `tid`. Its children inherit both, unless `policy`
/// contains SCHED_RESET_ON_FORK.
fn set_scheduler(tid: i32, policy: i32, priority: libc::c_int) -> io::Result<()> {
    let (call, parameter) = (libc::SYS_sched_setscheduler, &raw const priority);
    // SAFETY: the kernel's sched_param is one int, which the call only reads; a wrong tid is an
    // error, not a hazard.
    checked(unsafe { libc::syscall(call, tid, policy, parameter) }).map(drop)
}

/// Whether thread `tid` has the ordinary policy and [`SHORT_SLICE`]; 0 means the calling thread.
pub fn has_short_slice(tid: i32) -> io::Result<bool> {
    let found = attributes(tid)?;
    let ordinary = found.policy == libc::SCHED_OTHER as u32;
    Ok(ordinary && found.runtime == SHORT_SLICE.as_nanos() as u64)
}

/// The policy of thread `tid`; 0 means the calling thread.
pub fn policy(tid: i32) -> io::Result<Policy> {
    let found = attributes(tid)?;
    Ok(match found.policy as i32 {
        libc::SCHED_OTHER => Policy::Other,
        // 1 to 99 by the kernel's interface.
        libc::SCHED_FIFO => Policy::Fifo(found.priority as u8),
        other => Policy::Unknown(other),
    })
}

fn attributes(tid: i32) -> io::Result<Attributes> {
    let mut found = Attributes::default();
    let size = size_of::<Attributes>();
    // SAFETY: the kernel writes at most as many bytes as its argument says.
    checked(unsafe { libc::syscall(libc::SYS_sched_getattr, tid, &raw mut found, size, 0) })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_thread_is_ordinary_and_may_say_so_again() {
        std::thread::spawn(|| {
            set_policy(0, Policy::Other).unwrap();
            assert_eq!(policy(0).unwrap(), Policy::Other);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_short_slice_needs_no_right_and_is_not_inherited() {
        std::thread::spawn(|| {
            assert!(!has_short_slice(0).unwrap());
            if let Err(error) = set_short_slice(0, 0) {
                assert_eq!(error.kind(), io::ErrorKind::Unsupported);
                println!("skipped: this kernel has no slices");
                return;
            }
            assert_eq!(policy(0).unwrap(), Policy::Other);
            let child = std::thread::spawn(|| has_short_slice(0).unwrap());
            assert!(
                !child.join().unwrap(),
                "a program that it starts is an ordinary one"
            );
            set_policy(0, Policy::Other).unwrap();
            assert!(has_short_slice(0).unwrap());
            end_short_slice(0, 0).unwrap();
            assert!(!has_short_slice(0).unwrap());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn fifo_is_set_read_and_not_inherited() {
        std::thread::spawn(|| {
            if let Err(error) = set_policy(0, Policy::Fifo(1)) {
                println!("skipped: SCHED_FIFO is refused here: {error}");
                return;
            }
            assert_eq!(policy(0).unwrap(), Policy::Fifo(1));
            let child = std::thread::spawn(|| policy(0).unwrap()).join().unwrap();
            assert_eq!(child, Policy::Other);
            set_policy(0, Policy::Other).unwrap();
            assert_eq!(policy(0).unwrap(), Policy::Other);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_is_given_the_priority_of_the_one_that_starts_it() {
        let started = || {
            let (begin, begun) = std::sync::mpsc::channel::<()>();
            let thread = std::thread::spawn(move || {
                let _ = begun.recv();
                let own = policy(0).unwrap();
                // A program that the thread starts is not real-time.
                (
                    own,
                    std::thread::spawn(|| policy(0).unwrap()).join().unwrap(),
                )
            });
            share_priority(&thread).unwrap();
            drop(begin);
            thread.join().unwrap()
        };
        std::thread::spawn(move || {
            assert_eq!(started(), (Policy::Other, Policy::Other));
            if let Err(error) = set_policy(0, Policy::Fifo(1)) {
                println!("skipped: SCHED_FIFO is refused here: {error}");
                return;
            }
            assert_eq!(started(), (Policy::Fifo(1), Policy::Other));
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_does_not_exist_is_an_error() {
        assert!(policy(i32::MAX).is_err());
        assert!(set_policy(i32::MAX, Policy::Other).is_err());
    }
}
