//! Serves EROFS images through FUSE, by joining [`erofs_engine`] and [`fuse_transport`].
//!
//! [`serve`] is the life of a server, the process that answers the kernel's requests. In its
//! sandbox it can do little more than read the image. To mount and unmount it asks the mount helper
//! ([`protocol`]), which is in crate `erofs-mount`.
//!
//! Modules, each of which uses only those after it: `serve` (the life of a server), `answer` (its
//! answers to requests), `ahead` (looking ahead of readers), `threads`, `sandbox` (rights that the
//! server drops), `protocol` (its messages to the mount helper), `options`.
#![forbid(unsafe_code)]
// The print macros panic if the stream cannot be written.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod ahead;
mod answer;
pub mod error;
pub mod log;
mod nodes;
mod note;
pub mod options;
mod origin;
pub mod packets;
pub mod poll;
pub mod protocol;
pub mod request;
mod sandbox;
mod serve;
pub mod text;
mod threads;
mod version;

pub use ahead::profile_identity;
pub use answer::queries;
#[cfg(feature = "fail-points")]
pub use answer::{ATTEMPTS_XATTR, CRASH_XATTR};
pub use note::note;
pub use serve::{MountFigures, serve};
pub use version::set_version;
