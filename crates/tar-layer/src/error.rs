//! Why a layer cannot be rewritten, on one line.

use std::io;

/// Result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a layer cannot be rewritten.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The archive cannot be read.
    #[error("{0}")]
    Read(#[source] io::Error),
    /// The file for contents cannot be read or written.
    #[error("cannot store the contents of files: {0}")]
    Contents(#[source] io::Error),
    /// The new archive cannot be written.
    #[error("cannot write the converted archive: {0}")]
    Write(#[source] io::Error),
    /// The input is not an archive, or is damaged.
    #[error("not a valid tar archive: {0}")]
    Archive(String),
    /// An entry that cannot be unpacked: its name, and why.
    #[error("{0} in the archive: {1}")]
    Entry(String, String),
    /// The layer's files have more bytes than this limit.
    #[error("unpacks to more than {0} bytes")]
    Content(u64),
    /// The layer's names take more memory than this limit in bytes.
    #[error("the names of the layer take more than {} MiB of memory", .0 >> 20)]
    Names(u64),
}

impl Error {
    /// An entry with this name cannot be unpacked.
    pub(crate) fn entry(name: &[u8], why: impl Into<String>) -> Error {
        const SHOWN: usize = 200;
        let mut shown = name[..name.len().min(SHOWN)].escape_ascii().to_string();
        if name.len() > SHOWN {
            shown.push_str("...");
        }
        Error::Entry(shown, why.into())
    }
}
