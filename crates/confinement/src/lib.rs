//! What a process gives up for good before it touches bytes that others chose: its
//! [capabilities], [root](user), [files] and [system calls](calls).
//!
//! Each step says why the kernel or a container refuses it; what that means is for the caller to
//! decide. The server of a mount and the processes that convert layers each put their own together.
#![forbid(unsafe_code)]

pub mod calls;
pub mod capabilities;
pub mod files;
pub mod user;
