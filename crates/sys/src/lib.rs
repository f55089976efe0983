//! The base of every crate: clock, CPUs, wake-ups, counts, and the calls which libraries lack.
//!
//! The only crate of the workspace with unsafe code: each module offers a safe interface, and each
//! unsafe block states why it is sound.
#![allow(unsafe_code)]

pub mod allocator;
mod anonymous;
pub mod attempts;
pub mod clock;
pub mod counts;
pub mod cpu_list;
pub mod eventfd;
pub mod fork;
pub mod fuse_device;
pub mod fuse_query;
pub mod fuse_ring;
pub mod fuse_signals;
pub mod inherited;
pub mod lend;
pub mod mapped;
pub mod memory;
pub mod microlzma;
pub mod own_files;
pub mod pi_condvar;
pub mod pi_mutex;
pub mod sched;
pub mod shared_words;
pub mod socket_filter;
pub mod tracepoint_count;
mod uring;
