//! The CPUs' workers: one slot per possible CPU, filled and emptied as CPUs are added and removed.

pub(crate) mod cpu_list;
pub(crate) mod cpus;
mod helpers;
pub(crate) mod pinned;
pub(crate) mod slot;
mod uevent;
