//! The base of every crate: clock, CPUs, wake-ups, counts, and the calls which libraries lack.
//!
//! The only crate of the workspace with unsafe code: each module offers a safe interface, and each
//! unsafe block states why it is sound.
#![allow(unsafe_code)]

#[cfg(feature = "fuse-ring")]
mod anonymous;
#[cfg(feature = "attempts")]
pub mod attempts;
pub mod clock;
pub mod counts;
pub mod cpu_list;
pub mod eventfd;
pub mod fork;
pub mod fuse_device;
pub mod fuse_query;
#[cfg(feature = "fuse-ring")]
pub mod fuse_ring;
pub mod fuse_signals;
pub mod inherited;
pub mod lend;
#[cfg(feature = "mapped-read")]
pub mod mapped;
pub mod memory;
#[cfg(feature = "microlzma")]
pub mod microlzma;
pub mod own_files;
pub mod pi_mutex;
pub mod sched;
pub mod shared_words;
pub mod socket_filter;
#[cfg(feature = "tracepoint-count")]
pub mod tracepoint_count;
#[cfg(feature = "fuse-ring")]
mod uring;
