//! Processes the lab starts, watches and ends; what /proc says about the others.

mod child;
mod facts;
mod others;

pub(crate) use child::{Child, End, in_path};
pub(crate) use facts::{
    Machine, cpu_ticks, descendants, kernel_threads, machine_ticks, process_threads,
    ticks_per_second,
};
pub(crate) use others::Others;
