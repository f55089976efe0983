//! Processes that the lab starts, watches and ends; /proc for the others.

mod child;
mod daemon_stat;
mod facts;
mod memory;
mod others;

pub(crate) use child::{Child, End, in_path};
pub(crate) use daemon_stat::daemon_stat;
pub(crate) use facts::{
    Machine, allowed_cpus, cgroup, cpu_ticks, descendants, foreign_pids, kernel_threads,
    machine_ticks, process_threads, sleeping_threads, ticks_per_second,
};
pub use memory::DaemonMemory;
pub(crate) use others::{FOREIGN_LIMIT, Others};
