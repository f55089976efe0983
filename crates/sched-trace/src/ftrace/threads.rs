//! Names of the threads that a trace mentions.

use crate::{Comm, Kind, Trace};
use std::collections::HashMap;

/// Fills [`Trace::threads`] with the last name each thread of the events had; keeps what is there.
pub(crate) fn name_threads(trace: &mut Trace) {
    let mut comms: HashMap<i32, Comm> = HashMap::new();
    let mut name = |pid: i32, comm: Comm| {
        if pid > 0 && !comm.is_empty() {
            comms.insert(pid, comm);
        }
    };
    for event in &trace.events {
        match event.kind {
            // The previous thread was named when it was switched in, unless it was renamed since.
            Kind::Switch {
                prev_pid,
                prev_comm,
                next_pid,
                next_comm,
                ..
            } => {
                name(prev_pid, prev_comm);
                name(next_pid, next_comm);
            }
            Kind::Waking { pid, comm, .. }
            | Kind::WakeupNew { pid, comm, .. }
            | Kind::Exit { pid, comm, .. }
            | Kind::Rename { pid, comm } => name(pid, comm),
            Kind::Fork {
                child_pid,
                child_comm,
                ..
            } => name(child_pid, child_comm),
            _ => {}
        }
    }
    for (pid, comm) in comms {
        trace.threads.entry(pid).or_default().comm = comm;
    }
}
