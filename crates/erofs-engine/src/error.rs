//! Errors of the engine: one line that names image, inode, physical address, codec and numbers.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::remote;
use crate::request::budget::Exceeded;
use erofs_codecs::DecodeError;
use erofs_format::{ErrorClass, Location, Nid};

/// Result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an image could not be opened or a file could not be read.
///
/// Cheap to clone: all readers that wait for the same pcluster receive the same error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An image or device file could not be opened.
    #[error("{path}: {source}")]
    Open {
        /// The path of that file.
        path: String,
        /// The error that the system returned.
        source: Arc<io::Error>,
    },
    /// A file could not be fetched from its URL, which the error names.
    #[error("{0}")]
    Remote(Arc<io::Error>),
    /// The image as a whole is not usable.
    #[error("{image}: {source}")]
    Image {
        /// The image file.
        image: Arc<str>,
        /// The fault.
        source: Arc<erofs_format::Error>,
    },
    /// The image cannot be verified: the options, the superblock of the hash tree or the root hash
    /// are wrong.
    #[error("{image}: verity: {what}")]
    Verity {
        /// The image file.
        image: Arc<str>,
        /// The fault.
        what: Arc<str>,
    },
    /// The images cannot form one tree.
    #[error("{image}: {what}")]
    Layers {
        /// The top image.
        image: Arc<str>,
        /// The reason.
        what: Arc<str>,
    },
    /// A file, or something reached through it, cannot be read.
    #[error("{image}: nid {own_nid}: {fault}")]
    File {
        /// The image file.
        image: Arc<str>,
        /// The inode.
        nid: Nid,
        /// The inode's number in its own image; `nid` may differ from it if there are several
        /// images.
        own_nid: Nid,
        /// The fault.
        fault: FileFault,
    },
    /// The page pool or the worker threads could not be allocated.
    #[error("cannot start: {0}")]
    Start(Arc<io::Error>),
    /// A path that cannot be resolved in the image.
    #[error("{image}: {path}: {what}")]
    Path {
        /// The image's path.
        image: Arc<str>,
        /// The path.
        path: String,
        /// The reason.
        what: &'static str,
        /// The errno for replies.
        errno: i32,
    },
}

/// Why one file of an image cannot be read.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileFault {
    /// The file's structures cannot be used.
    #[error("{0}")]
    Format(Arc<erofs_format::Error>),
    /// The file's bytes could not be read from the image.
    #[error("{length} bytes at {}: {source}", place(location))]
    Fetch {
        /// Where the bytes are stored.
        location: Location,
        /// Number of bytes to read.
        length: u64,
        /// The error that the system returned.
        source: Arc<io::Error>,
    },
    /// A pcluster cannot be decoded.
    #[error("{} at file offset {logical}: {source}", place(location))]
    Decode {
        /// First byte of the file that the pcluster holds.
        logical: u64,
        /// Where the pcluster is stored.
        location: Location,
        /// The codec and the reason.
        source: DecodeError,
    },
    /// A request needs more work than any valid image causes.
    #[error("{0}")]
    Budget(#[from] Exceeded),
    /// Not enough memory for a buffer of this many bytes.
    #[error("no memory for a buffer of {0} bytes")]
    Memory(usize),
    /// A helping thread ended before it had read this many bytes of a request (a bug).
    #[error("{0} bytes were not read: the thread that read them panicked")]
    Unfinished(usize),
    /// The inode is of the wrong kind: not a directory, not a symlink, and so on.
    #[error("{what}")]
    Kind {
        /// The kind that was required.
        what: &'static str,
        /// The errno for replies.
        errno: i32,
    },
}

impl From<erofs_format::Error> for FileFault {
    fn from(error: erofs_format::Error) -> Self {
        FileFault::Format(Arc::new(error))
    }
}

impl FileFault {
    fn errno(&self) -> i32 {
        match self {
            FileFault::Format(source) => errno_of(source),
            FileFault::Budget(Exceeded::Closed) => errno::EINTR,
            FileFault::Memory(_) => errno::ENOMEM,
            FileFault::Kind { errno, .. } => *errno,
            _ => errno::EIO,
        }
    }
}

/// Errno values of Linux for errors of the engine.
pub mod errno {
    /// No such file or directory.
    pub const ENOENT: i32 = 2;
    /// Interrupted.
    pub const EINTR: i32 = 4;
    /// Input/output error.
    pub const EIO: i32 = 5;
    /// Out of memory.
    pub const ENOMEM: i32 = 12;
    /// Not a directory.
    pub const ENOTDIR: i32 = 20;
    /// Invalid argument.
    pub const EINVAL: i32 = 22;
    /// Too many symbolic links.
    pub const ELOOP: i32 = 40;
    /// Operation not supported.
    pub const EOPNOTSUPP: i32 = 95;
    /// Structure needs cleaning: the kernel's EFSCORRUPTED.
    pub const EUCLEAN: i32 = 117;
}

impl Error {
    /// A file could not be opened.
    pub(crate) fn open(path: &Path, source: io::Error) -> Self {
        match remote::url(path) {
            Some(_) => Error::Remote(Arc::new(source)),
            None => Error::named(path.display(), source),
        }
    }

    /// A file with this name in messages cannot be used.
    pub(crate) fn named(name: impl ToString, source: io::Error) -> Self {
        Error::Open {
            path: name.to_string(),
            source: Arc::new(source),
        }
    }

    pub(crate) fn verity(image: impl Into<Arc<str>>, what: String) -> Self {
        Error::Verity {
            image: image.into(),
            what: what.into(),
        }
    }

    pub(crate) fn layers(image: impl Into<Arc<str>>, what: String) -> Self {
        Error::Layers {
            image: image.into(),
            what: what.into(),
        }
    }

    /// An error for memory or threads that are not available at start-up.
    pub(crate) fn start(source: io::Error) -> Self {
        Error::Start(Arc::new(source))
    }

    /// An error in the file `nid`.
    pub(crate) fn file(
        image: &Arc<str>,
        nid: Nid,
        own_nid: Nid,
        fault: impl Into<FileFault>,
    ) -> Self {
        Error::File {
            image: image.clone(),
            nid,
            own_nid,
            fault: fault.into(),
        }
    }

    /// The errno for a filesystem's reply.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Open { source, .. } => source.raw_os_error().unwrap_or(errno::EIO),
            Error::Image { source, .. } => errno_of(source),
            Error::File { fault, .. } => fault.errno(),
            Error::Layers { .. } => errno::EINVAL,
            Error::Remote(_) | Error::Start(_) | Error::Verity { .. } => errno::EIO,
            Error::Path { errno, .. } => *errno,
        }
    }
}

fn errno_of(error: &erofs_format::Error) -> i32 {
    match error.class() {
        ErrorClass::NotErofs => errno::EINVAL,
        ErrorClass::Unsupported => errno::EOPNOTSUPP,
        ErrorClass::Corrupted => errno::EUCLEAN,
        ErrorClass::Io => errno::EIO,
    }
}

fn place(location: &Location) -> String {
    let Location {
        device,
        metabox,
        physical,
    } = location;
    match (metabox, device) {
        (true, _) => format!("metabox address {physical:#x}"),
        (false, 0) => format!("physical address {physical:#x}"),
        (false, _) => format!("physical address {physical:#x} of device {device}"),
    }
}
