//! Errors: one line each, with the cause and the remedy.

use std::io;
use std::path::{Path, PathBuf};

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
    #[error("{path}: {fault}")]
    File {
        /// The trace file.
        path: PathBuf,
        /// What is wrong.
        fault: Fault,
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
pub(crate) const COUNTED: &str = "its clock counts events or cycles and not time; record with the clock mono \
                       (trace-cmd record -C mono; echo mono > trace_clock)";

/// Results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What is wrong with a trace file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The system's answer.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file has none of the known formats; how it begins.
    #[error("unknown trace format ({0}); known are Perfetto, perf.data, trace.dat and ftrace text")]
    UnknownFormat(String),
    /// The file has a known format but is damaged, or lacks what is needed.
    #[error("broken {format} trace near byte {offset}: {reason}")]
    Broken {
        /// Its format.
        format: &'static str,
        /// Where, as far as known.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// The file has a known format, and nothing in it that is read.
    #[error("{format} without scheduler events: {record}")]
    NoEvents {
        /// Its format.
        format: &'static str,
        /// How a trace of this format has them.
        record: &'static str,
    },
    /// A trace that exceeds a bound of the reader.
    #[error("more than {limit} {what}; record a shorter trace, or fewer events")]
    TooBig {
        /// The bound of [`crate::ReadOptions`] that was exceeded.
        limit: usize,
        /// What is bounded.
        what: &'static str,
    },
}

impl Fault {
    pub(crate) fn broken(format: &'static str, offset: u64, reason: impl Into<String>) -> Fault {
        let reason = reason.into();
        Fault::Broken {
            format,
            offset,
            reason,
        }
    }

    /// The error of a file. A reason may quote it; the error stays one line whatever it contains.
    pub(crate) fn at(mut self, path: &Path) -> Error {
        if let Self::Broken { reason, .. } = &mut self {
            *reason = reason.replace(char::is_control, " ");
        }
        Error::File {
            path: path.into(),
            fault: self,
        }
    }
}
