//! FUSE requests in, replies out: a small transport for read-only filesystems, served per CPU.
//!
//! It is independent of any particular filesystem: implement [`Filesystem`], open `/dev/fuse`,
//! mount, and pass the descriptor to [`Session::start`]. Every serving thread then opens a
//! [`Channel`] of its own and repeats [`Channel::wait`] and [`Channel::serve`]. The threads belong
//! to the caller, which pins them and sets their priority.
//!
//! Two transports carry the requests: cloned descriptors of `/dev/fuse`, and FUSE over io_uring
//! with one queue for each CPU. The filesystem is the same for both.
//!
//! Requests of every kind are answered: what a read-only filesystem serves, by the
//! [`Filesystem`]; what the kernel does better alone (OPEN, ACCESS, FLUSH), by ENOSYS, after which
//! it no longer asks; what would write, by EROFS; what is malformed, by EINVAL.
#![forbid(unsafe_code)]

mod buffer;
mod channel;
mod connection;
mod counters;
mod device;
mod dispatch;
mod fail_points;
mod filesystem;
mod handshake;
mod interrupts;
mod node;
mod page_store;
mod reader_cpu;
mod reply;
mod request;
mod request_info;
mod ring;
mod rings;
mod session;
mod standby;
mod state;
mod timing;
mod wait_order;
pub mod wire;

/// Whether this process may use io_uring.
pub use sys::fuse_ring::probe as probe_io_uring;

pub use channel::Channel;
pub use counters::{Histogram, Statistics};
pub use filesystem::Filesystem;
pub use handshake::{Config, Protocol};
pub use interrupts::is_interrupted;
pub use node::{Found, Seek};
pub use page_store::PageStore;
pub use reply::{DirectoryReply, Entry, ReadReply};
pub use request_info::{Caller, Seen, Served};
pub use rings::Rings;
pub use rustix::io::Errno;
pub use session::{Error, Session};
pub use state::{Ready, State};
pub use sys::eventfd::EventFd;
pub use wire::{Attr, StatfsOut as Statfs};
