//! System calls the libraries lack: the only crate with unsafe code of ours.
//!
//! Each module offers a safe interface; each unsafe block states why it is sound.
#![allow(unsafe_code)]

pub mod fuse_device;
pub mod fuse_query;
#[cfg(feature = "fuse-ring")]
pub mod fuse_ring;
pub mod fuse_signals;
pub mod lend;
#[cfg(feature = "mapped-read")]
pub mod mapped;
pub mod memory;
#[cfg(feature = "microlzma")]
pub mod microlzma;
pub mod sched;
#[cfg(feature = "tracepoint-count")]
pub mod tracepoint_count;
