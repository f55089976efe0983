//! The commands for mounts, one file each.

pub mod abandonable;
pub mod mount;
pub mod stat;
