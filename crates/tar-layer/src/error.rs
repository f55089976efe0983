//! Why a layer cannot be rewritten, on one line.

use std::fmt;
use std::io;

/// Why a layer cannot be rewritten.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The archive cannot be read.
    Read(io::Error),
    /// The file for contents cannot be read or written.
    Contents(io::Error),
    /// The new archive cannot be written.
    Write(io::Error),
    /// The input is not an archive, or is damaged.
    Archive(String),
    /// An entry that cannot be unpacked: its name, and why.
    Entry(String, String),
    /// The layer's files have more bytes than this limit.
    Content(u64),
    /// The layer's names take more memory than this limit in bytes.
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Read(error) => write!(f, "{error}"),
            Error::Contents(error) => write!(f, "cannot store the contents of files: {error}"),
            Error::Write(error) => write!(f, "cannot write the converted archive: {error}"),
            Error::Archive(why) => write!(f, "not a valid tar archive: {why}"),
            Error::Entry(name, why) => write!(f, "{name} in the archive: {why}"),
            Error::Content(most) => write!(f, "unpacks to more than {most} bytes"),
            Error::Names(most) => {
                let most = most >> 20;
                write!(
                    f,
                    "the names of the layer take more than {most} MiB of memory"
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Read(error) | Error::Contents(error) | Error::Write(error) => Some(error),
            _ => None,
        }
    }
}
