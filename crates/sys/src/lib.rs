//! System calls and C library functions that have no safe binding, and other things that need
//! unsafe code: memory runs, locks with priority inheritance, lent closures.
//!
//! Except for the C interface of `liberofast`, all unsafe code of the workspace is in this crate.
//! Each module offers a safe interface, and each unsafe block explains why it is sound.
//!
//! ```
//! let before = sys::clock::now_ns();
//! assert!(sys::clock::now_ns() >= before);
//! ```
#![allow(unsafe_code)]

use std::io;

pub mod allocator;
#[cfg(feature = "for-tests")]
pub mod attempts;
pub mod clock;
pub mod environment;
pub mod eventfd;
pub mod fork;
pub mod fuse_ioctl;
pub mod fuse_ring;
pub mod fuse_signals;
pub mod inherited;
pub mod lend;
pub mod mapped_owners;
#[cfg(feature = "for-tests")]
pub mod mapped_read;
pub mod mapping;
pub mod memory;
pub mod microlzma;
pub mod namespace;
pub mod parent;
pub mod pi_condvar;
pub mod pi_mutex;
pub mod sched;
pub mod shared_words;
pub mod socket_filter;
pub mod tracepoint_count;
mod uring;

/// The result of a call that returns -1 for an error.
fn checked(result: impl Into<libc::c_long>) -> io::Result<libc::c_long> {
    match result.into() {
        -1 => Err(io::Error::last_os_error()),
        number => Ok(number),
    }
}
