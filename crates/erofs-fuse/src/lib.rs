//! Serves EROFS images through FUSE: joins [`erofs_engine`] and [`fuse_transport`].
//!
//! [`serve`] is the life of a server, the process that answers the kernel's requests. It reads the
//! image, and in its sandbox it can do little else: it neither mounts nor unmounts, but asks the
//! mount helper for that ([`protocol`]), which crate `erofs-mount` has.
//!
//! Rooms, each of which uses only those after it: `serve` (the life of a server), `answer` (its
//! answers to requests), `ahead` (looking ahead of readers), `threads`, `sandbox` (rights that the
//! server drops), `protocol` (what it says to its mount helper), `options`.
#![forbid(unsafe_code)]
// They panic if the stream cannot be written.
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
