//! Errors: one line each, with the cause and the remedy.

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
    /// The file has none of the known formats.
    #[error(
        "{path}: unknown trace format ({found}); known are Perfetto, perf.data, trace.dat and ftrace text"
    )]
    UnknownFormat {
        /// The trace file.
        path: PathBuf,
        /// How it begins.
        found: String,
    },
    /// The file has a known format but is damaged, or lacks what is needed.
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
    /// The file has a known format, and nothing in it that is read.
    #[error("{path}: {format} without scheduler events: {record}")]
    NoEvents {
        /// The trace file.
        path: PathBuf,
        /// Its format.
        format: &'static str,
        /// How a trace of this format has them.
        record: &'static str,
    },
    /// A trace that exceeds a bound of the reader.
    #[error("{path}: more than {limit} {what}; record a shorter trace, or fewer events")]
    TooBig {
        /// The trace file.
        path: PathBuf,
        /// The bound of [`crate::ReadOptions`] that was exceeded.
        limit: usize,
        /// What is bounded.
        what: &'static str,
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

/// Why a trace of the clocks `counter` and, without its scale, `x86-tsc` is refused.
pub(crate) const COUNTED: &str = "time stamps that count something else than time; record with the clock mono \
                       (trace-cmd record -C mono; echo mono > trace_clock)";

/// Results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a reader, which does not know the path of its file.
#[derive(Debug)]
pub(crate) enum Fault {
    Io(io::Error),
    Broken {
        format: &'static str,
        offset: u64,
        reason: String,
    },
    NoEvents {
        format: &'static str,
        record: &'static str,
    },
    TooBig {
        limit: usize,
        what: &'static str,
    },
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
                reason: printable(&reason),
            },
            Self::NoEvents { format, record } => Error::NoEvents {
                path,
                format,
                record,
            },
            Self::TooBig { limit, what } => Error::TooBig { path, limit, what },
        }
    }
}

/// A reason may quote the file; it stays one line whatever the file contains.
fn printable(reason: &str) -> String {
    let blank = |c: char| if c.is_control() { ' ' } else { c };
    reason.chars().map(blank).collect()
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
