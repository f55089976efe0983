//! The processes that the lab starts, watches and ends, and facts from /proc about all processes.

mod child;
mod facts;
mod lead;
mod memory;
mod orphans;
mod others;

pub(crate) use child::{Child, End, in_path, output, tool};
pub(crate) use facts::{
    Machine, allowed_cpus, cgroup, cpu_ticks, descendants, foreign_pids, kernel_threads,
    machine_ticks, name, number_in, policy, process_threads, sleeping_threads, ticks_per_second,
    value_in,
};
pub use memory::DaemonMemory;
pub(crate) use memory::daemon_stat;
pub(crate) use orphans::Orphans;
pub(crate) use others::{FOREIGN_LIMIT, Others, load_found};
