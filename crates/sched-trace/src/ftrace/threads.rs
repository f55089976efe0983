//! Names and processes of the threads that a trace mentions.

use crate::{Comm, Kind, Task, Trace};
use std::collections::HashMap;

/// `CLONE_THREAD` of clone(2): the new task is a thread of its parent's process.
const CLONE_THREAD: u64 = 0x10000;

/// Fills [`Trace::threads`] with the latest name of each thread in the events; existing names are
/// kept.
pub(crate) fn name_threads(trace: &mut Trace) {
    let mut comms: HashMap<i32, Comm> = HashMap::new();
    let mut name = |pid: i32, comm: Comm| {
        if pid > 0 && !comm.is_empty() {
            comms.insert(pid, comm);
        }
    };
    let task = |task: Task| (task.pid, task.comm);
    for event in &trace.events {
        let (pid, comm) = match event.kind {
            // The previous thread was named when it was switched in, unless it was renamed in the
            // meantime.
            Kind::Switch { prev, next, .. } => {
                name(prev.pid, prev.comm);
                task(next)
            }
            Kind::Wake { task: woken, .. } | Kind::Exit { task: woken } => task(woken),
            Kind::Rename { pid, comm } | Kind::NewTask { pid, comm, .. } => (pid, comm),
            Kind::Fork {
                child_pid,
                child_comm,
                ..
            } => (child_pid, child_comm),
            _ => continue,
        };
        name(pid, comm);
    }
    for (pid, comm) in comms {
        trace.threads.entry(pid).or_default().comm = comm;
    }
    processes(trace);
}

/// Fills in the processes of threads that were created in the trace.
pub(crate) fn processes(trace: &mut Trace) {
    for event in &trace.events {
        if let Kind::NewTask { pid, flags, .. } = event.kind {
            let process = match flags & CLONE_THREAD {
                0 => pid,
                _ => trace
                    .threads
                    .get(&event.pid)
                    .map_or(0, |parent| parent.tgid),
            };
            let thread = trace.threads.entry(pid).or_default();
            thread.tgid = if process > 0 { process } else { thread.tgid };
        }
    }
}
