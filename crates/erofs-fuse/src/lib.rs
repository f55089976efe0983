//! Mounts EROFS images through FUSE: joins [`erofs_engine`] and [`fuse_transport`].
//!
//! [`mount`] serves an image until it is unmounted, in the foreground or as a daemon; [`umount`]
//! and [`stat`] act on a mount from outside. A program that calls [`mount`] for the background
//! must begin its `main` with [`run_if_daemon`]: the daemon is the same program, started again.
//!
//! Four rooms, each of which uses only those after it: `serve` (the server process), `outside` (how
//! commands find the processes of a mount), `helper` (the privileged process that mounts and
//! unmounts), `sandbox` (rights the server drops).
#![forbid(unsafe_code)]
// They panic when the stream cannot be written.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod await_daemon;
mod daemon;
mod error;
mod helper;
mod inherited;
mod log;
mod note;
mod options;
mod origin;
mod outside;
mod poll;
mod request;
mod respawn;
mod sandbox;
mod serve;
mod start;
pub mod text;
mod umount;
mod upgrade;
mod version;

pub use daemon::{mount, run_if_daemon};
pub use erofs_engine::trace_spans::Span;
pub use error::{Error, HelperError};
pub use helper::{erofast_mount_at, mountpoint_of, mountpoints, profile_folder};
pub use inherited::close_inherited;
pub use note::note;
pub use options::{KNOWN, KnownOption, MountOptions, OptionError, READ_AHEAD_KB, SandboxMode};
pub use request::{FSTYPE, MountRequest};
#[cfg(feature = "fail-points")]
pub use sandbox::allowed_calls;
#[cfg(feature = "fail-points")]
pub use serve::{ATTEMPTS_XATTR, CRASH_XATTR};
pub use serve::{Answer, profile_identity, prometheus, stat, stat_all, take_spans};
pub use umount::umount;
pub use upgrade::{upgrade, upgrade_all, upgrade_each};
pub use version::set_version;
