//! Errors: one line each, with what a person needs to go on.

use std::io;
use std::path::PathBuf;

/// Why a trace could not be recorded, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel has no tracefs, or the user may not use it.
    #[error("no scheduler trace: {reason}")]
    NoTracefs {
        /// What is missing and what to do about it.
        reason: String,
    },
    /// A file of the tracing directory could not be used.
    #[error("tracefs {path}: {source}")]
    Tracefs {
        /// The file, below the tracing directory.
        path: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A trace file could not be opened, read or written.
    #[error("{path}: {source}")]
    Io {
        /// The trace file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The file is none of the formats known here.
    #[error(
        "{path}: not a trace that is known here ({found}); Perfetto, perf.data, trace.dat and ftrace text are"
    )]
    UnknownFormat {
        /// The trace file.
        path: PathBuf,
        /// How it begins.
        found: String,
    },
    /// The file is of a known format and broken, or lacks what is needed.
    #[error("{path}: broken {format} trace near byte {offset}: {reason}")]
    Broken {
        /// The trace file.
        path: PathBuf,
        /// Its format.
        format: &'static str,
        /// Where, as far as known.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// A trace of more events than the reader was allowed to keep.
    #[error("{path}: more than {limit} events; cut the trace or raise the limit")]
    TooBig {
        /// The trace file.
        path: PathBuf,
        /// [`crate::ReadOptions::max_events`].
        limit: usize,
    },
    /// The command to record could not be started.
    #[error("{command}: {source}")]
    Command {
        /// Its name.
        command: String,
        /// The system's answer.
        source: io::Error,
    },
}

/// Results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong in a file whose path the reader does not know.
#[derive(Debug)]
pub(crate) enum Fault {
    Io(io::Error),
    Broken {
        format: &'static str,
        offset: u64,
        reason: String,
    },
    TooBig(usize),
}

impl Fault {
    pub fn at(self, path: &std::path::Path) -> Error {
        let path = path.to_path_buf();
        match self {
            Self::Io(source) => Error::Io { path, source },
            Self::Broken {
                format,
                offset,
                reason,
            } => Error::Broken {
                path,
                format,
                offset,
                reason,
            },
            Self::TooBig(limit) => Error::TooBig { path, limit },
        }
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
