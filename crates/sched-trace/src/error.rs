//! Errors: one line each, with the cause and the remedy.

use std::io;
use std::path::{Path, PathBuf};

/// Why a trace could not be recorded, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel has no tracefs, or the user may not use it.
    #[error("not a scheduler trace: {reason}")]
    NoTracefs {
        /// The missing requirement, and the remedy.
        reason: String,
    },
    /// A file of the tracing directory could not be used.
    #[error("tracefs {path}: {source}")]
    Tracefs {
        /// Path of the file, relative to the tracing directory.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// A trace file could not be opened, read or written.
    #[error("{path}: {fault}")]
    File {
        /// The trace file.
        path: PathBuf,
        /// What is wrong with the file.
        fault: Fault,
    },
    /// The command to record could not be started.
    #[error("{command}: {source}")]
    Command {
        /// Name of the command.
        command: String,
        /// The system's error.
        source: io::Error,
    },
}

/// Why a trace with the clock `counter` or, without its scale, `x86-tsc` is refused.
pub(crate) const COUNTED: &str = "its clock counts events or cycles, not time; record with the \
                                  clock mono (trace-cmd record -C mono; echo mono > trace_clock)";

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The fault of a trace file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The system's error.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file has none of the known formats; the text describes its beginning.
    #[error("unknown trace format ({0}); known are Perfetto, perf.data, trace.dat and ftrace text")]
    UnknownFormat(String),
    /// The file has a known format but is damaged, or lacks something necessary.
    #[error("broken {format} trace near byte {offset}: {reason}")]
    Broken {
        /// Format of the file.
        format: &'static str,
        /// The offset near which the file is damaged, as far as known.
        offset: u64,
        /// What is wrong at the offset.
        reason: String,
    },
    /// The file has a known format but contains none of the events that are read.
    #[error("{format} without scheduler events: {record}")]
    NoEvents {
        /// Format of the file.
        format: &'static str,
        /// How to record a trace of this format with scheduler events.
        record: &'static str,
    },
    /// The trace exceeds a bound of the reader.
    #[error("more than {limit} {what}; record a shorter trace, or fewer events")]
    TooBig {
        /// The bound of [`crate::ReadOptions`] that was exceeded.
        limit: usize,
        /// The bounded quantity.
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

    /// Adds the file to the fault. A reason may quote the file, but the error stays on one line
    /// whatever the file contains.
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
