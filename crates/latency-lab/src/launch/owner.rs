//! Which group each thread of a trace belongs to: program, engine, load, lab or kernel.

use std::collections::{BTreeSet, HashMap};

use sched_trace::{Kind, Trace};
use serde::{Deserialize, Serialize};

use super::origin::Mounts;

/// The owner of a thread, and so of the CPU time it uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// The idle task.
    Idle,
    /// The launched program and its children.
    Program,
    /// Threads of the kernel that decompressed, or a daemon's threads.
    Engine,
    /// The load.
    Load,
    /// Other threads of the kernel.
    Kernel,
    /// The lab.
    Lab,
    /// Unrelated programs.
    Other,
}

/// The threads whose waits for a CPU are a launch's scheduling latency.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The kernel's threads while they decompress.
    Kernel,
    /// A daemon's threads.
    #[default]
    Daemon,
    /// The program's own threads, because nothing is mounted for it.
    Program,
}

/// Threads that were listed before or right after a launch; the trace shows their children.
#[derive(Debug, Default, Clone)]
pub(super) struct Threads {
    pub(super) lab: Vec<u32>,
    pub(super) load: Vec<u32>,
    pub(super) kernel: Vec<u32>,
    pub(super) engine: Vec<u32>,
    /// Selects the threads whose waits are the scheduling latency.
    pub(super) waiting: Waiting,
    /// Mounts that the kernel may also decompress for.
    pub(super) mounts: Mounts,
    /// The CPUs on which the program may run.
    pub(super) cpus: BTreeSet<u32>,
}

/// The owners of known threads, and of every thread that one of them created during the trace.
pub(super) fn owners(trace: &Trace, threads: &Threads, program: i32) -> HashMap<i32, Owner> {
    let mut owners = HashMap::from([(0, Owner::Idle)]);
    let groups = [
        (&threads.kernel, Owner::Kernel),
        (&threads.lab, Owner::Lab),
        (&threads.load, Owner::Load),
        (&threads.engine, Owner::Engine),
    ];
    for (members, owner) in groups {
        owners.extend(members.iter().map(|&pid| (pid as i32, owner)));
    }
    owners.insert(program, Owner::Program);
    for event in &trace.events {
        if let Kind::Fork {
            child_pid,
            parent_pid,
            ..
        } = event.kind
            && child_pid != program
            && let Some(&owner) = owners.get(&parent_pid)
        {
            owners.insert(child_pid, owner);
        }
    }
    owners
}
