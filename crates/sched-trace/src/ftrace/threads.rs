//! Names and processes of the threads that a trace mentions.

use crate::{Comm, Kind, Thread, Trace};
use std::collections::BTreeMap;

/// Fills [`Trace::threads`] with the last name each thread of the events had; keeps what is there.
pub(crate) fn name_threads(trace: &mut Trace) {
    let mut threads = std::mem::take(&mut trace.threads);
    for event in &trace.events {
        match event.kind {
            Kind::Switch {
                prev_pid,
                prev_comm,
                next_pid,
                next_comm,
                ..
            } => {
                name(&mut threads, prev_pid, prev_comm);
                name(&mut threads, next_pid, next_comm);
            }
            Kind::Waking { pid, comm, .. }
            | Kind::Wakeup { pid, comm, .. }
            | Kind::WakeupNew { pid, comm, .. }
            | Kind::Exit { pid, comm, .. }
            | Kind::Rename { pid, comm } => name(&mut threads, pid, comm),
            Kind::Fork {
                child_pid,
                child_comm,
                ..
            } => {
                name(&mut threads, child_pid, child_comm);
            }
            _ => {}
        }
    }
    trace.threads = threads;
}

fn name(threads: &mut BTreeMap<i32, Thread>, pid: i32, comm: Comm) {
    if pid > 0 && !comm.is_empty() {
        threads.entry(pid).or_default().comm = comm;
    }
}
