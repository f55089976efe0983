//! Errors of experiments, one line each.

use std::io;
use std::path::{Path, PathBuf};

/// A failure that ended an experiment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A requested engine is not available on this machine.
    #[error("engine {engine}: {reason}")]
    EngineMissing {
        /// The engine, as requested.
        engine: String,
        /// The missing requirement, with a remedy.
        reason: String,
    },
    /// Mounting failed although the engine is available.
    #[error("engine {engine}: mounting {}: {reason}", image.display())]
    Mount {
        /// The engine, as requested.
        engine: String,
        /// The image that should have been mounted.
        image: PathBuf,
        /// The last line that the engine printed, or the system's reason.
        reason: String,
    },
    /// The process that served the mount ended while it was still needed.
    #[error("engine {engine}: its process {pid} ended during the experiment ({how}){}", dash(.last_line))]
    EngineDied {
        /// The engine, as requested.
        engine: String,
        /// PID of the process that served the mount.
        pid: u32,
        /// The process's exit status, or the signal that killed it.
        how: String,
        /// Last line of its standard error, possibly empty.
        last_line: String,
    },
    /// The launched program failed.
    #[error("{}{program}: {how}{}", of_engine(.engine), dash(.last_line))]
    Program {
        /// The engine that the program was launched from; empty if nothing was mounted for it.
        engine: String,
        /// The program.
        program: String,
        /// Exit status, signal, time-out, or the reason why it did not start.
        how: String,
        /// Last line of its standard error, possibly empty.
        last_line: String,
        /// All of its standard error.
        errors: String,
    },
    /// The load could not be started or did not reach its share of CPU time.
    #[error("load: {0}")]
    Load(String),
    /// The recorder failed.
    #[error("recording the scheduler: {0}")]
    Recorder(#[from] sched_trace::Error),
    /// An image could not be created or lacks the program, or the machine of `lab kernel` could not
    /// be created or did not run.
    #[error("{0}")]
    Preparation(String),
    /// The user lacks a required privilege.
    #[error("{0}")]
    Privilege(String),
    /// Usage error: nothing was started.
    #[error("{0}")]
    Usage(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation, with the path.
        what: String,
        /// The system's reason.
        source: io::Error,
    },
}

/// Returns an error unless the user is root.
pub(crate) fn need_root(what: &str) -> Result<(), LabError> {
    match rustix::process::geteuid().is_root() {
        true => Ok(()),
        false => Err(LabError::Privilege(what.into())),
    }
}

/// Adds the operation to an error.
pub(crate) trait Doing<T>: Sized {
    /// Adds an action such as "reading" and a path such as "/x".
    fn doing(self, action: &str, path: impl AsRef<Path>) -> Result<T, LabError> {
        self.named(|| format!("{action} {}", path.as_ref().display()))
    }

    /// Adds an operation such as "watching signal 2".
    fn named(self, operation: impl FnOnce() -> String) -> Result<T, LabError>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn named(self, operation: impl FnOnce() -> String) -> Result<T, LabError> {
        self.map_err(|source| LabError::Io {
            what: operation(),
            source: source.into(),
        })
    }
}

impl LabError {
    /// Adds a remedy to the error of a command that was launched without an engine.
    pub(crate) fn with_remedy(mut self, remedy: &str) -> Self {
        if let Self::Program { engine, how, .. } = &mut self
            && engine.is_empty()
        {
            *how = format!("{how} ({remedy})");
        }
        self
    }
}

fn of_engine(name: &str) -> String {
    match name {
        "" => "the command failed: ".into(),
        name => format!("engine {name}: "),
    }
}

pub(crate) fn after_blank(text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!(" {text}"),
    }
}

pub(crate) fn dash(text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!(": {text}"),
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
        let full: Result<(), _> = Err(io::Error::from_raw_os_error(28));
        let error = full.doing("reading", "/x").unwrap_err().to_string();
        assert_eq!(error, "reading /x: No space left on device (os error 28)");
    }
}
