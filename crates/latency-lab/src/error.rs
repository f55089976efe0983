//! Errors of experiments, one line each.

use std::io;
use std::path::{Path, PathBuf};

/// A fault that ended an experiment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A requested engine is not on this machine.
    #[error("engine {engine}: {reason}")]
    EngineMissing {
        /// The engine as requested.
        engine: String,
        /// What is missing, and what to do about it.
        reason: String,
    },
    /// Mounting failed although the engine is there.
    #[error("engine {engine}: mounting {}: {reason}", image.display())]
    Mount {
        /// The engine as requested.
        engine: String,
        /// The image that was to be mounted.
        image: PathBuf,
        /// The last line of the engine or the system's reason.
        reason: String,
    },
    /// The process that serves the mount ended while it was needed.
    #[error("engine {engine}: its process {pid} ended during the experiment ({how}){}", dash(.last_line))]
    EngineDied {
        /// The engine as requested.
        engine: String,
        /// The process that was serving.
        pid: u32,
        /// Exit status or signal.
        how: String,
        /// Last line of its standard error, possibly empty.
        last_line: String,
    },
    /// The launched program did not end well.
    #[error("engine {engine}: {program}: {how}{}", dash(.last_line))]
    Program {
        /// The engine it was launched from.
        engine: String,
        /// The program.
        program: String,
        /// Exit status, signal, time-out or reason it did not start.
        how: String,
        /// Last line of its standard error, possibly empty.
        last_line: String,
        /// All of it.
        errors: String,
    },
    /// The load could not be started, or does not reach its share of CPU time.
    #[error("load: {0}")]
    Load(String),
    /// The recorder could not do its work.
    #[error("recording the scheduler: {0}")]
    Recorder(String),
    /// The kernel's variants could not be made or run.
    #[error("{0}")]
    Kernel(String),
    /// The user may not do this.
    #[error("{0}")]
    Privilege(String),
    /// Usage error: nothing was started.
    #[error("{0}")]
    Usage(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The action, with the path.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
}

impl LabError {
    /// An I/O fault with the action and the path it happened on.
    pub(crate) fn io(action: &str, path: &Path, source: impl Into<io::Error>) -> Self {
        LabError::Io {
            what: format!("{action} {}", path.display()),
            source: source.into(),
        }
    }
}

fn dash(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!(": {text}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_one_line_with_its_reason() {
        let error = LabError::Program {
            engine: "kernel-loop".into(),
            program: "/mnt/bin/tool".into(),
            how: "exit status 3".into(),
            last_line: "no such table".into(),
            errors: "starting\nno such table\n".into(),
        };
        assert_eq!(
            error.to_string(),
            "engine kernel-loop: /mnt/bin/tool: exit status 3: no such table"
        );
        let error = LabError::io("reading", Path::new("/x"), io::Error::from_raw_os_error(28));
        assert_eq!(
            error.to_string(),
            "reading /x: No space left on device (os error 28)"
        );
    }
}
