//! Errors of the engine: one line that names image, inode, physical address, codec and numbers.

use std::io;
use std::sync::Arc;

use crate::request::budget::Exceeded;
use erofs_codecs::DecodeError;
use erofs_format::{ErrorClass, Location, Nid};

/// Why an image could not be opened or a file could not be read.
///
/// Cheap to clone: readers that wait for the same pcluster all get the same error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An image or device file could not be opened.
    #[error("{path}: {source}")]
    Open {
        /// The file.
        path: String,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// The image as a whole cannot be used.
    #[error("{image}: {source}")]
    Image {
        /// The image file.
        image: Arc<str>,
        /// What is wrong with it.
        source: Arc<erofs_format::Error>,
    },
    /// The image cannot be verified: options, superblock of the hash tree, or root hash.
    #[error("{image}: verity: {what}")]
    Verity {
        /// The image file.
        image: Arc<str>,
        /// What is wrong.
        what: Arc<str>,
    },
    /// An inode, or something reached through it, cannot be used.
    #[error("{image}: nid {nid}: {source}")]
    Inode {
        /// The image file.
        image: Arc<str>,
        /// The inode.
        nid: Nid,
        /// What is wrong with it.
        source: Arc<erofs_format::Error>,
    },
    /// Bytes of a file could not be read from the image.
    #[error("{image}: nid {nid}: {length} bytes at {}: {source}", place(location))]
    Fetch {
        /// The image file.
        image: Arc<str>,
        /// The inode.
        nid: Nid,
        /// Where the bytes were to come from.
        location: Location,
        /// How many.
        length: u64,
        /// The system's reason.
        source: Arc<io::Error>,
    },
    /// A pcluster does not decode.
    #[error(
        "{image}: nid {nid}: {} at file offset {logical}: {source}",
        place(location)
    )]
    Decode {
        /// The image file.
        image: Arc<str>,
        /// The inode.
        nid: Nid,
        /// First byte of the file that the pcluster holds.
        logical: u64,
        /// Where the pcluster is.
        location: Location,
        /// Codec and reason.
        source: DecodeError,
    },
    /// Structures that lead to themselves.
    #[error("{image}: nid {nid}: {what}")]
    Loop {
        /// The image file.
        image: Arc<str>,
        /// The inode.
        nid: Nid,
        /// Which structure.
        what: &'static str,
    },
    /// A request takes more work than any sound image causes.
    #[error("{image}: nid {nid}: {source}")]
    Budget {
        /// The image file.
        image: Arc<str>,
        /// The inode.
        nid: Nid,
        /// Which limit.
        source: Exceeded,
    },
    /// No memory for a buffer.
    #[error("{image}: nid {nid}: no memory for a buffer of {bytes} bytes")]
    Memory {
        /// The image file.
        image: Arc<str>,
        /// The inode.
        nid: Nid,
        /// Bytes wanted.
        bytes: usize,
    },
    /// A thread that helped with a request ended before its part was done (a fault here).
    #[error("{image}: nid {nid}: {bytes} bytes were not read: the thread that read them panicked")]
    Unfinished {
        /// The image file.
        image: Arc<str>,
        /// The inode.
        nid: Nid,
        /// Bytes that are missing.
        bytes: usize,
    },
    /// The page pool or the worker threads could not be allocated.
    #[error("cannot start: {0}")]
    Start(Arc<io::Error>),
    /// Not a directory, not a symlink, and so on.
    #[error("{image}: nid {nid}: {what}")]
    Kind {
        /// The image file.
        image: Arc<str>,
        /// The inode.
        nid: Nid,
        /// What it is not.
        what: &'static str,
        /// The matching errno.
        errno: i32,
    },
    /// A path that is not in the image.
    #[error("{image}: {path}: {what}")]
    Path {
        /// The image file.
        image: Arc<str>,
        /// The path.
        path: String,
        /// Why the lookup failed.
        what: &'static str,
        /// The matching errno.
        errno: i32,
    },
}

/// Errno values of Linux that an engine's error maps to.
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
    /// Is a directory.
    pub const EISDIR: i32 = 21;
    /// Invalid argument.
    pub const EINVAL: i32 = 22;
    /// Too many symbolic links.
    pub const ELOOP: i32 = 40;
    /// Operation not supported.
    pub const EOPNOTSUPP: i32 = 95;
    /// Structure needs cleaning: what the kernel calls EFSCORRUPTED.
    pub const EUCLEAN: i32 = 117;
}

impl Error {
    pub(crate) fn verity(image: impl Into<Arc<str>>, what: String) -> Self {
        Error::Verity {
            image: image.into(),
            what: what.into(),
        }
    }

    /// Memory or threads are missing at start-up.
    pub(crate) fn start(source: io::Error) -> Self {
        Error::Start(Arc::new(source))
    }

    /// The errno of a filesystem's reply.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Open { source, .. } => source.raw_os_error().unwrap_or(errno::EIO),
            Error::Image { source, .. } | Error::Inode { source, .. } => match source.class() {
                ErrorClass::NotErofs => errno::EINVAL,
                ErrorClass::Unsupported => errno::EOPNOTSUPP,
                ErrorClass::Corrupted => errno::EUCLEAN,
                ErrorClass::Io => errno::EIO,
            },
            Error::Budget {
                source: Exceeded::Closed,
                ..
            } => errno::EINTR,
            Error::Fetch { .. }
            | Error::Decode { .. }
            | Error::Unfinished { .. }
            | Error::Start(_)
            | Error::Verity { .. }
            | Error::Budget { .. } => errno::EIO,
            Error::Loop { .. } => errno::EUCLEAN,
            Error::Memory { .. } => errno::ENOMEM,
            Error::Kind { errno, .. } | Error::Path { errno, .. } => *errno,
        }
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
