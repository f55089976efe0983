//! Errors in mounting, unmounting and reading counters, one line each.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::options::OptionError;

/// An error in mounting, unmounting or reading counters.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The image could not be opened.
    #[error(transparent)]
    Engine(#[from] erofs_engine::Error),
    /// The `-o` options are invalid.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// The handshake with the kernel failed.
    #[error(transparent)]
    Session(#[from] fuse_transport::Error),
    /// The worker threads cannot serve.
    #[error("cannot serve from the worker threads: {0}")]
    Workers(#[from] erofs_engine::cpu_workers::Error),
    /// The mount point is unusable.
    #[error("{mountpoint}: {why}")]
    Mountpoint {
        /// The mount point.
        mountpoint: PathBuf,
        /// The reason, and the remedy.
        why: String,
    },
    /// Another user's mount, which the kernel shows only to that user.
    #[error(
        "{0}: only the user who mounted it can see it, unless it has allow_root or allow_other"
    )]
    Private(PathBuf),
    /// `/dev/fuse` cannot be opened.
    #[error("/dev/fuse: {0}; {hint}", hint = hint(.0))]
    NoFuse(#[source] io::Error),
    /// The user is not root, and fusermount3 is missing.
    #[error(
        "mounting without root needs fusermount3, which was not found: install the package fuse3"
    )]
    NoFusermount,
    /// The mount cannot be unmounted while it is in use.
    #[error("the mount is busy")]
    Busy,
    /// fusermount3 did not end in time.
    #[error("{mountpoint}: fusermount3 (process {pid}) did not end within {seconds} s")]
    FusermountSilent {
        /// The mount point.
        mountpoint: PathBuf,
        /// Process ID of fusermount3.
        pid: u32,
        /// Time limit in seconds.
        seconds: u64,
    },
    /// `sandbox=strict` was requested, but a part of the sandbox is missing.
    #[error("sandbox=strict: {0}")]
    Sandbox(String),
    /// FUSE over io_uring is not available.
    #[error("FUSE over io_uring: {0}")]
    IoUring(String),
    /// The descriptor of `ready_fd` is not open.
    #[error("ready_fd={0}: descriptor {0} is not open")]
    ReadyFd(u32),
    /// `restart=on` was requested, but the server of this mount cannot be replaced.
    #[error("restart=on: {0}")]
    Restart(String),
    /// `standby` was requested, but the processes of this mount cannot be replaced.
    #[error("standby: {0}")]
    Standby(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The call that failed.
        what: String,
        /// The reason.
        source: io::Error,
    },
    /// The daemon could not mount; the text is the daemon's own line.
    #[error("{0}")]
    Daemon(String),
    /// The mount helper refused a request or could not carry it out.
    #[error(transparent)]
    Helper(#[from] HelperError),
    /// A server died, or could not be started or ended.
    #[error("{0}")]
    Server(String),
    /// One process of a mount sent another an unexpected request, or the other process is gone.
    #[error("{0}")]
    Protocol(String),
    /// The launch profile cannot be used.
    #[error("{0}")]
    Profile(String),
}

impl Error {
    /// Returns a function that adds the failed call to an errno.
    pub fn io(what: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::Io {
            what: what.into(),
            source: errno.into(),
        }
    }

    /// Returns a function that adds the failed call to an error of the standard library.
    pub fn std_io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            what: what.into(),
            source,
        }
    }

    /// Adds the mount point to the error.
    pub fn at(self, mountpoint: &Path) -> Self {
        match self {
            Self::Session(source) => Self::mountpoint(mountpoint, source.to_string()),
            other => other,
        }
    }

    /// The error for a mount point that cannot be used, with the reason.
    pub fn mountpoint(mountpoint: &Path, why: impl Into<String>) -> Self {
        Self::Mountpoint {
            mountpoint: mountpoint.to_owned(),
            why: why.into(),
        }
    }

    /// The error for a path that does not resolve to a mount point.
    pub fn no_mountpoint(path: &Path, error: &io::Error) -> Self {
        let why = match error.kind() {
            io::ErrorKind::NotFound => "no such directory".to_owned(),
            _ => error.to_string(),
        };
        Self::mountpoint(path, why)
    }

    /// The error for a mount that cannot be unmounted without also removing the mount at `by`.
    pub fn covered(mountpoint: &Path, by: &Path) -> Self {
        let by = by.display();
        Self::mountpoint(
            mountpoint,
            format!("not unmounted: another filesystem is mounted at {by}; unmount that first"),
        )
    }
}

/// Maximum number of characters in a line that one process of a mount sends another. A packet holds
/// such a line even though JSON encodes some characters as six bytes.
pub const LINE_CHARS: usize = 2500;

/// An error of the mount helper, as its server receives it.
#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
#[error("{line}")]
pub struct HelperError {
    line: String,
    /// The error number, if a system call failed.
    errno: Option<i32>,
}

impl From<&Error> for HelperError {
    fn from(error: &Error) -> Self {
        Self {
            line: error.to_string().chars().take(LINE_CHARS).collect(),
            errno: match error {
                Error::Io { source, .. } => source.raw_os_error(),
                _ => None,
            },
        }
    }
}

impl From<HelperError> for io::Error {
    fn from(error: HelperError) -> Self {
        let known = error.errno.map(Self::from_raw_os_error);
        known.unwrap_or_else(|| Self::other(error))
    }
}

/// The remedy if this user may not open `/dev/fuse`.
pub const OPEN_TO_EVERYONE: &str = "everyone should be able to read and write it (mode 666)";

/// Describes an error with its remedy: to run as root, or the alternative `or`.
pub fn needs_root(error: &io::Error, or: &str) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!("{error}; it needs root{or}"),
        _ => error.to_string(),
    }
}

/// The remedy for an error of `/dev/fuse`.
fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => OPEN_TO_EVERYONE,
        _ => "FUSE is needed: run modprobe fuse, or pass the device into the container",
    }
}
