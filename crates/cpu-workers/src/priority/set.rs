//! Sets the priority of a thread: real-time, or else a negative nice value and a short slice, as
//! far as permitted.

use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, getpriority_process, getrlimit, setpriority_process};
use sys::sched;

use crate::Policy;
use crate::faults::{self, FailPoint};

/// The lowest real-time priority, as for the kernel's own workers (sched_set_fifo_low): ahead of
/// every ordinary thread and behind every other real-time one.
const FIFO_LOW: u8 = 1;

/// The most favourable nice value, which the kernel's WQ_HIGHPRI workers have too.
const NICE_HIGH: i32 = -20;

/// The right required for real-time priority.
const RIGHTS: &str = "needs RLIMIT_RTPRIO of 1 or more (ulimit -r), or root or CAP_SYS_NICE outside \
                      of user namespaces; with CONFIG_RT_GROUP_SCHED also a budget of the cpu \
                      cgroup (cpu.rt_runtime_us)";

/// Prefix of the notice that nice -20 was refused to an unbound thread.
const NOT_FIRST: &str = "nice -20 refused";
/// Part of the notice when both real-time priority and nice -20 are refused.
const NEITHER: &str = "nice -20 is refused too";

/// Drops the line about a refusal of nice -20 to the unbound threads if the line about real-time
/// workers mentions such a refusal too.
pub(crate) fn merge(lines: &mut Vec<String>) {
    if lines.iter().any(|line| line.contains(NEITHER)) {
        lines.retain(|line| !line.starts_with(NOT_FIRST));
    }
}

/// The requested priority of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Wanted {
    /// Leaves the thread's priority as it was at creation.
    #[default]
    Untouched,
    /// The ordinary policy and this nice value.
    Normal { nice: i32 },
    /// Like `Normal`, with a short slice if the kernel has slices.
    Prompt { nice: i32 },
    /// The nice value -20.
    First,
    /// SCHED_FIFO 1, or else the best priority below it: a negative nice value, a short slice, or
    /// both.
    RealTime,
    /// Like `RealTime`, but any priority granted will do.
    Best,
}

/// Applies the priority, or the closest one permitted. An error is one line with what was refused,
/// the priority granted instead, and the remedy.
pub(crate) fn apply(tid: i32, wanted: Wanted) -> Result<(), String> {
    match wanted {
        Wanted::Untouched => Ok(()),
        Wanted::Normal { nice } => {
            set_normal(tid, nice).map_err(|error| format!("normal priority refused: {error}"))
        }
        Wanted::Prompt { nice } => {
            set_slice(tid, nice).or_else(|_| apply(tid, Wanted::Normal { nice }))
        }
        Wanted::First => set_first(tid).map_err(|error| {
            format!(
                "{NOT_FIRST} ({error}): needs root, CAP_SYS_NICE or RLIMIT_NICE 40; running at \
                 normal priority"
            )
        }),
        Wanted::RealTime => real_time(tid),
        Wanted::Best => {
            let _ = real_time(tid);
            Ok(())
        }
    }
}

fn set_normal(tid: i32, nice: i32) -> io::Result<()> {
    sched::set_policy(tid, sched::Policy::Other)?;
    set_nice(tid, nice)?;
    match sched::has_short_slice(tid)? {
        true => sched::end_short_slice(tid, nice),
        false => Ok(()),
    }
}

fn real_time(tid: i32) -> Result<(), String> {
    let fifo = faults::check(FailPoint::RealTime);
    let fifo = fifo.and_then(|()| sched::set_policy(tid, sched::Policy::Fifo(FIFO_LOW)));
    fifo.map_err(|error| {
        let reason = match Errno::from_io_error(&error) {
            Some(Errno::PERM) => RIGHTS.to_owned(),
            _ => error.to_string(),
        };
        let instead = next_best(tid);
        format!("real-time priority refused: {reason}; running {instead}")
    })
}

/// Tries the priorities below real-time, and returns what was granted.
fn next_best(tid: i32) -> String {
    let had = nice_of(tid).unwrap_or(0);
    let mut lower = [NICE_HIGH, allowed_nice()].into_iter();
    lower.find(|&nice| nice < had && set_nice(tid, nice).is_ok());
    let nice = nice_of(tid).unwrap_or(0);
    let slice = match set_slice(tid, nice) {
        Ok(()) => format!("with a slice of {} us", sched::SHORT_SLICE.as_micros()),
        Err(_) => "without a slice of its own".to_owned(),
    };
    match nice {
        NICE_HIGH => format!("at nice {nice}, {slice}"),
        _ if nice < had => format!("at nice {nice}, {slice} ({NEITHER})"),
        _ => format!("at normal priority, {slice} ({NEITHER})"),
    }
}

/// The lowest nice value that RLIMIT_NICE allows.
fn allowed_nice() -> i32 {
    let limit = getrlimit(Resource::Nice).current.unwrap_or(40);
    20 - limit.min(40) as i32
}

fn set_slice(tid: i32, nice: i32) -> io::Result<()> {
    faults::check(FailPoint::Slice)?;
    sched::set_short_slice(tid, nice)
}

fn set_first(tid: i32) -> io::Result<()> {
    // If nice -20 is requested, a real-time thread must not stay real-time.
    if matches!(sched::policy(tid)?, sched::Policy::Fifo(_)) {
        sched::set_policy(tid, sched::Policy::Other)?;
    }
    set_nice(tid, NICE_HIGH)
}

fn set_nice(tid: i32, nice: i32) -> io::Result<()> {
    faults::check(FailPoint::Nice)?;
    // Linux takes a thread ID here and applies it to this thread alone.
    Ok(setpriority_process(Pid::from_raw(tid), nice)?)
}

/// The thread's priority as the kernel reports it.
pub(crate) fn current(tid: i32) -> Option<Policy> {
    match sched::policy(tid).ok()? {
        sched::Policy::Fifo(priority) => Some(Policy::Fifo(priority)),
        _ => {
            let nice = nice_of(tid)? as i8;
            match sched::has_short_slice(tid) {
                Ok(true) => Some(Policy::Slice { nice }),
                _ => Some(Policy::Other { nice }),
            }
        }
    }
}

/// The nice value, -20 to 19.
pub(crate) fn nice_of(tid: i32) -> Option<i32> {
    getpriority_process(Pid::from_raw(tid)).ok()
}

/// The ID of the calling thread.
pub(crate) fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}
