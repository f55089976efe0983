//! Mounts EROFS images through FUSE: joins [`erofs_engine`] and [`fuse_transport`].
//!
//! [`mount`] serves an image until it is unmounted, in the foreground or as a daemon; [`umount`]
//! and [`stat`] talk to a mount from outside. A program that calls [`mount`] for the background
//! must begin its `main` with [`run_if_daemon`]: the daemon is the same program, started again.
#![forbid(unsafe_code)]

mod daemon;
mod error;
mod event_source;
mod filesystem;
mod mounter;
mod mounting;
mod nodes;
mod notify;
mod options;
mod readahead;
mod sandbox;
mod serve;
mod spans;
mod stat;
mod storer;
mod uring;

use std::path::Path;

pub use daemon::run_if_daemon;
pub use error::Error;
pub use mounting::umount;
pub use options::{IoUring, KNOWN, KnownOption, MountOptions, OptionError, escape};
pub use readahead::READ_AHEAD_KB;
pub use spans::{SPANS_XATTR, Span, Spans, take_spans};
pub use stat::{STAT_XATTR, prometheus, stat};

/// What a mount is called in `/proc/mounts`.
pub const FSTYPE: &str = "fuse.erofast";

/// What to mount, and where.
#[derive(Clone, Debug)]
pub struct MountRequest {
    /// The image file or block device.
    pub image: std::path::PathBuf,
    /// An existing directory.
    pub mountpoint: std::path::PathBuf,
    /// The `-o` options.
    pub options: MountOptions,
    /// Serve in the calling process until unmounted, rather than in a daemon. The calling thread
    /// enters the sandbox then, and stays in it.
    pub foreground: bool,
}

/// Mounts an image.
///
/// In the foreground this returns when the mount is gone; else when the daemon serves it.
///
/// # Errors
/// One line that says what is wrong. Nothing is left mounted and no process behind.
pub fn mount(request: &MountRequest) -> Result<(), Error> {
    if request.foreground || request.options.debug {
        return serve::foreground(
            request,
            &mut |notice| eprintln!("erofast: {notice}"),
            &mut || Ok(()),
        );
    }
    daemon::start(request)
}

/// Whether `path` leads to a mount whose daemon died. Attributes and directories may still come out
/// of the kernel's memory; the sizes of the filesystem never do.
pub(crate) fn is_dead_mount(path: &Path) -> bool {
    matches!(rustix::fs::statfs(path), Err(rustix::io::Errno::NOTCONN))
}
