//! Sets the priority of a thread: real-time, else nice -20, else unchanged.

use std::io;

use rustix::process::{Pid, getpriority_process, setpriority_process};
use sys::sched;

use super::refusal;
use crate::Policy;
use crate::faults::{FailPoint, Faults};

/// The lowest real-time priority, as the kernel's own workers have (sched_set_fifo_low): before
/// every ordinary thread, behind every other real-time one.
const FIFO_LOW: u8 = 1;

/// The first among ordinary threads, as work queues marked WQ_HIGHPRI have.
const NICE_HIGH: i32 = -20;

/// Prefix of the notice when nice -20 is refused too.
const NOT_FIRST: &str = "nice -20 refused";
/// Part of the notice when both real-time priority and nice -20 are refused.
const NEITHER: &str = "nice -20 is refused too";

/// Leaves one line for one refusal: the real-time workers' line covers the unbound threads
/// behind them too.
pub(crate) fn merge(lines: &mut Vec<String>) {
    if lines.iter().any(|line| line.contains(NEITHER)) {
        lines.retain(|line| !line.starts_with(NOT_FIRST));
    }
}

/// The requested priority of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// Leave it as it was made.
    Untouched,
    /// The ordinary policy and this nice value.
    Normal { nice: i32 },
    /// Nice -20.
    First,
    /// SCHED_FIFO 1, else nice -20.
    RealTime,
}

/// Sets it, as near as allowed. An error is one line: what was refused, the priority granted
/// instead, and the remedy.
pub(crate) fn apply(tid: i32, wanted: Wanted, faults: &Faults) -> Result<(), String> {
    match wanted {
        Wanted::Untouched => Ok(()),
        Wanted::Normal { nice } => {
            let ordinary = sched::set_policy(tid, sched::Policy::Other);
            let result = ordinary.and_then(|()| set_nice(tid, nice, faults));
            result.map_err(|error| format!("normal priority refused: {error}"))
        }
        Wanted::First => match set_first(tid, faults) {
            Ok(()) => Ok(()),
            Err(error) => Err(format!(
                "{NOT_FIRST} ({error}): needs root, CAP_SYS_NICE or RLIMIT_NICE 40; running at \
                 normal priority"
            )),
        },
        Wanted::RealTime => real_time(tid, faults),
    }
}

fn real_time(tid: i32, faults: &Faults) -> Result<(), String> {
    let fifo = faults.check(FailPoint::RealTime);
    let Err(error) = fifo.and_then(|()| sched::set_policy(tid, sched::Policy::Fifo(FIFO_LOW)))
    else {
        return Ok(());
    };
    let reason = refusal::explain(&error);
    let instead = match set_first(tid, faults) {
        Ok(()) => "at nice -20".to_owned(),
        Err(_) => format!("at normal priority ({NEITHER})"),
    };
    Err(format!(
        "real-time priority refused: {reason}; running {instead}"
    ))
}

fn set_first(tid: i32, faults: &Faults) -> io::Result<()> {
    // A real-time thread must not stay real-time when nice -20 is requested.
    if matches!(sched::policy(tid)?, sched::Policy::Fifo(_)) {
        sched::set_policy(tid, sched::Policy::Other)?;
    }
    set_nice(tid, NICE_HIGH, faults)
}

fn set_nice(tid: i32, nice: i32, faults: &Faults) -> io::Result<()> {
    faults.check(FailPoint::Nice)?;
    // Linux takes a thread's id here and means this thread alone.
    Ok(setpriority_process(Pid::from_raw(tid), nice)?)
}

/// The thread's priority as the kernel reports it.
pub(crate) fn current(tid: i32) -> Option<Policy> {
    match sched::policy(tid).ok()? {
        sched::Policy::Fifo(priority) => Some(Policy::Fifo(priority)),
        _ => Some(Policy::Other {
            nice: nice_of(tid)? as i8,
        }),
    }
}

/// -20 to 19.
pub(crate) fn nice_of(tid: i32) -> Option<i32> {
    getpriority_process(Pid::from_raw(tid)).ok()
}

/// The calling thread.
pub(crate) fn own_tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}
