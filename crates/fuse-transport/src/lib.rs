//! FUSE requests in, replies out: a small transport for read-only filesystems, served per CPU.
//!
//! It knows nothing of any particular filesystem: implement [`Filesystem`], open `/dev/fuse`, mount,
//! and give the descriptor to [`Session::start`]. Every serving thread then takes a [`Channel`] of
//! its own and repeats [`Channel::wait`] and [`Channel::serve`]: the threads are the caller's, so
//! it is the caller who pins them and sets their priority.
//!
//! Two transports carry the requests: cloned descriptors of `/dev/fuse`, and FUSE over io_uring
//! with one queue for each CPU. The filesystem does not notice which.
//!
//! Requests of every kind are answered: what a read-only filesystem serves, by the
//! [`Filesystem`]; what the kernel does better alone (OPEN, ACCESS, FLUSH), by ENOSYS, after which
//! it no longer asks; what would write, by EROFS; what is malformed, by EINVAL.
#![forbid(unsafe_code)]

mod buffer;
mod channel;
mod counters;
mod device;
mod dispatch;
mod filesystem;
mod handshake;
mod reply;
mod request;
mod ring;
mod session;
mod waker;
pub mod wire;

/// Whether this process may use io_uring at all: to be asked before it is agreed on with the kernel,
/// which lets every request wait for the rings.
pub use sys::fuse_ring::probe as probe_io_uring;

pub use channel::{Channel, Ready, State};
pub use counters::{Histogram, Statistics};
pub use filesystem::{Caller, Filesystem, Found, Seek, Seen, Served};
pub use handshake::{Config, Protocol};
pub use reply::{DirectoryReply, Entry, ReadReply, Shared};
pub use rustix::io::Errno;
pub use session::{Error, Session};
pub use waker::Waker;
pub use wire::{Attr, StatfsOut as Statfs};
