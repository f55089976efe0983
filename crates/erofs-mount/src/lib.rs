//! Mounts EROFS images through FUSE: the life of a mount.
//!
//! [`mount`] serves an image until it is unmounted, in the foreground or as a daemon; [`umount`],
//! [`upgrade_each`] and [`stat`] act on mounts from outside. A program that mounts in the
//! background must begin its `main` with [`run_if_daemon`], because the daemon is the same program,
//! started again. Crate [`erofs_fuse`] answers the kernel's requests, in a separate process.
//!
//! Modules, each of which uses only those after it: `daemon` (the processes of a mount),
//! `supervise` (the mount helper, their parent), `companion` (the process that looks ahead),
//! `upgrade`, `umount`, `stat`, `outside` (how commands find these processes), `mounting` (making
//! and removing one mount), `respawn` (this program, started again).
#![forbid(unsafe_code)]
// The print macros panic if the stream cannot be written.
#![cfg_attr(not(test), deny(clippy::print_stderr, clippy::print_stdout))]

mod child;
mod companion;
mod daemon;
mod inherited;
mod lock;
mod mounting;
mod outside;
mod patience;
mod respawn;
mod stat;
mod supervise;
mod umount;
mod upgrade;

pub use companion::{profile_beside, profile_folder};
pub use daemon::{mount, run_if_daemon};
pub use erofs_engine::trace_spans::Span;
pub use erofs_fuse::error::{Error, HelperError};
pub use erofs_fuse::options::{
    KNOWN, KnownOption, MountOptions, OptionError, READ_AHEAD_KB, SandboxMode, without_effect,
};
pub use erofs_fuse::request::{FSTYPE, MountRequest};
#[cfg(feature = "fail-points")]
pub use erofs_fuse::{ATTEMPTS_XATTR, CRASH_XATTR};
pub use erofs_fuse::{MountFigures, note, profile_identity, set_version, text};
pub use inherited::close_inherited;
pub use look_ahead::PATH_IN_MOUNT as PROFILE_IN_MOUNT;
pub use mounting::{erofast_mount_at, mountpoint_of, mountpoints, mounts_of_others};
pub use stat::{Answer, prometheus, stat, stat_each, take_spans};
pub use umount::umount;
pub use upgrade::{Upgraded, upgrade_all, upgrade_each};
