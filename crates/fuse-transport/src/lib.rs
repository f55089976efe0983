//! A small FUSE transport for read-only filesystems, with one serving thread per CPU.
//!
//! The transport is independent of any particular filesystem: implement [`Filesystem`], open
//! `/dev/fuse`, mount, and pass the descriptor to [`Session::start`]. Every serving thread then
//! opens its own [`Channel`] and repeats [`Channel::wait`] and [`Channel::serve`]. The threads
//! belong to the caller, which pins them and sets their priority.
//!
//! A filesystem with one file, mounted, read and unmounted (as root; without root, fusermount3
//! mounts and passes the descriptor):
//!
//! ```
//! use std::os::fd::AsRawFd;
//! use std::sync::Arc;
//! use fuse_transport::{
//!     Attr, Caller, Config, DirectoryReply, Entry, Errno, Failure, Filesystem, Found, ReadReply,
//!     Session, Statfs,
//! };
//!
//! const TEXT: &[u8] = b"hello\n";
//!
//! /// Node 1 is the root, node 2 the file "hello".
//! struct Hello;
//!
//! fn attr(node: u64) -> Attr {
//!     let (mode, size) = if node == 1 { (0o040_555, 0) } else { (0o100_444, TEXT.len()) };
//!     Attr { ino: node, mode, size: size as u64, nlink: 1, ..Attr::default() }
//! }
//!
//! impl Filesystem for Hello {
//!     fn lookup(&self, _: Caller, _: u64, name: &[u8]) -> Result<Option<Found>, Failure> {
//!         Ok((name == b"hello").then(|| Found { node: 2, attr: attr(2) }))
//!     }
//!     fn attributes(&self, _: Caller, node: u64) -> Result<Attr, Failure> {
//!         Ok(attr(node))
//!     }
//!     fn read(
//!         &self, _: Caller, _: u64, at: u64, reply: &mut ReadReply<'_>,
//!     ) -> Result<(), Failure> {
//!         let rest = TEXT.get(at as usize..).unwrap_or_default();
//!         let count = rest.len().min(reply.room());
//!         reply.spare()[..count].copy_from_slice(&rest[..count]);
//!         reply.advance(count);
//!         Ok(())
//!     }
//!     fn read_directory(
//!         &self, _: Caller, _: u64, position: u64, reply: &mut DirectoryReply<'_, '_>,
//!     ) -> Result<(), Failure> {
//!         if position == 0 {
//!             let entry = Entry { name: b"hello", ino: 2, kind: 8, next: 1 };
//!             reply.add(&entry, Some(&Found { node: 2, attr: attr(2) }));
//!         }
//!         Ok(())
//!     }
//!     fn read_link(&self, _: Caller, _: u64) -> Result<Vec<u8>, Failure> {
//!         Err(Errno::INVAL.into())
//!     }
//!     fn xattr(&self, _: Caller, _: u64, _: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
//!         Err(Errno::NOSYS.into())
//!     }
//!     fn xattr_names(&self, _: Caller, _: u64) -> Result<Vec<Vec<u8>>, Failure> {
//!         Err(Errno::NOSYS.into())
//!     }
//!     fn statfs(&self) -> Result<Statfs, Failure> {
//!         Ok(Statfs { bsize: 4096, frsize: 4096, namelen: 255, ..Statfs::default() })
//!     }
//! }
//!
//! # use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
//! # let place = std::env::temp_dir().join(format!("fuse-hello-{}", std::process::id()));
//! # std::fs::create_dir_all(&place)?;
//! # let run = || -> Result<(), Box<dyn std::error::Error>> {
//! let device = std::fs::File::options().read(true).write(true).open("/dev/fuse")?;
//! let fd = device.as_raw_fd();
//! let data = std::ffi::CString::new(format!("fd={fd},rootmode=40000,user_id=0,group_id=0"))?;
//! mount("hello", &place, "fuse.hello", MountFlags::RDONLY, Some(data.as_c_str()))?;
//! let config = Config::default(); // requests come over /dev/fuse, not over rings
//! let session = Session::start(device.into(), Arc::new(Hello), &config, None)?;
//! let channel = session.device_channel()?;
//! let server = std::thread::spawn(move || channel.run());
//! let read = std::fs::read(place.join("hello"));
//! unmount(&place, UnmountFlags::DETACH)?; // which ends the server
//! server.join().expect("no panic");
//! assert_eq!(read?, TEXT);
//! # Ok(())
//! # };
//! # let outcome = run();
//! # std::fs::remove_dir(&place)?;
//! # match outcome {
//! #     Err(error) if error.to_string().contains("ermi") => println!("skipped: {error}"),
//! #     Err(error) if error.to_string().contains("No such") => println!("skipped: {error}"),
//! #     outcome => outcome?,
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Two transports carry the requests: cloned descriptors of `/dev/fuse`, and FUSE over io_uring
//! with one queue per CPU. The filesystem is the same for both.
//!
//! Requests of every kind are answered. The [`Filesystem`] answers those that make sense on a
//! read-only filesystem. Requests that the kernel handles better on its own (OPEN, ACCESS, FLUSH)
//! get ENOSYS, after which the kernel no longer sends them. Requests that would write get EROFS,
//! and malformed ones EINVAL.
#![forbid(unsafe_code)]

mod back_off;
mod channel;
mod connection;
mod counters;
mod deferred;
mod deferred_queue;
mod device;
mod dispatch;
mod entry_order;
mod fail_points;
mod filesystem;
mod handshake;
mod in_flight;
mod message;
mod page_store;
mod reader_cpu;
mod reply;
mod request;
mod request_info;
mod responder;
mod ring;
mod ring_message;
mod rings;
mod session;
mod timing;
mod turn_channel;
mod wait_order;
pub mod wire;

/// Whether this process may use io_uring.
pub use sys::fuse_ring::probe as probe_io_uring;

pub use channel::{Channel, Ready, State};
pub use connection::clone_of;
pub use counters::{Histogram, Statistics};
pub use deferred::DeferredChannel;
#[cfg(feature = "fail-points")]
pub use fail_points::FAIL_STEP;
pub use filesystem::{DECLINED, Failure, Filesystem, Wait};
pub use handshake::{Config, Protocol};
pub use in_flight::{RequestsInFlight, TakenRequest};
pub use page_store::PageStore;
pub use reply::{DirectoryReply, Entry, Found, ReadReply, Seek};
pub use request_info::{Caller, Seen, Served};
pub use rings::Rings;
pub use rustix::io::Errno;
pub use session::{Error, Restartable, Session};
pub use sys::eventfd::EventFd;
pub use wire::{Attr, StatfsOut as Statfs};
