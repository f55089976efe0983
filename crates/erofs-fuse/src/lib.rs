//! Mounts EROFS images through FUSE: joins [`erofs_engine`] and [`fuse_transport`].
//!
//! [`mount`] serves an image until it is unmounted, in the foreground or as a daemon; [`umount`]
//! and [`stat`] act on a mount from outside. A program that calls [`mount`] for the background
//! must begin its `main` with [`run_if_daemon`]: the daemon is the same program, started again.
//!
//! Rooms, each of which uses only those after it: `serve` (the life of a server), `answer` (its
//! answers to requests), `ahead` (looking ahead of readers), `threads`, `supervise` (the mount
//! helper, its parent), `companion` (the process that looks ahead), `protocol` (the messages
//! between these processes), `outside` (how commands find them), `mounting` (making and removing
//! one mount), `sandbox` (rights that the server drops).
#![forbid(unsafe_code)]
// They panic if the stream cannot be written.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod ahead;
mod answer;
mod child;
mod companion;
mod daemon;
mod error;
mod inherited;
mod log;
mod mounting;
mod nodes;
mod note;
mod options;
mod origin;
mod outside;
mod packets;
mod patience;
mod poll;
mod protocol;
mod request;
mod respawn;
mod sandbox;
mod serve;
mod supervise;
pub mod text;
mod threads;
mod umount;
mod upgrade;
mod version;

pub use ahead::profile_identity;
pub use answer::take_spans;
#[cfg(feature = "fail-points")]
pub use answer::{ATTEMPTS_XATTR, CRASH_XATTR};
pub use companion::{profile_beside, profile_folder};
pub use daemon::{mount, run_if_daemon};
pub use erofs_engine::trace_spans::Span;
pub use error::{Error, HelperError};
pub use inherited::close_inherited;
pub use look_ahead::PATH_IN_MOUNT as PROFILE_IN_MOUNT;
pub use mounting::{erofast_mount_at, mountpoint_of, mountpoints, mounts_of_others};
pub use note::note;
pub use options::{KNOWN, KnownOption, MountOptions, OptionError, READ_AHEAD_KB, SandboxMode};
pub use request::{FSTYPE, MountRequest};
#[cfg(feature = "fail-points")]
pub use sandbox::allowed_calls;
pub use serve::{Answer, MountFigures, prometheus, stat, stat_each};
pub use umount::umount;
pub use upgrade::{Upgraded, upgrade, upgrade_all, upgrade_each};
pub use version::set_version;
