//! Rights that a process gives up for good before it touches untrusted bytes: its
//! [capabilities], [root](user), [files] and [system calls](calls).
//!
//! The error of each step says why the kernel or a container refused it; the caller decides whether
//! to continue. The server of a mount and the processes that convert layers each combine the steps
//! that they need.
#![forbid(unsafe_code)]

pub mod calls;
pub mod capabilities;
pub mod files;
pub mod user;
