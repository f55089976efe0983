//! The outcomes of a command.

use std::io;

use erofs_mount::note;

/// Result of a command that was not stopped by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Success: exit status 0.
    Fine,
    /// The operation failed in part, or found corruption, and has reported it: exit status 1.
    Faulty,
    /// A program that the command ran ended with this exit status, which is passed on.
    Ended(u8),
}

impl Outcome {
    /// Returns `Fine` if `good`, else `Faulty`.
    pub fn of(good: bool) -> Self {
        if good { Self::Fine } else { Self::Faulty }
    }

    /// Returns the outcome, or an error if printing failed. It is not an error if the reader closed
    /// the output early.
    pub fn unless_failed(self, printed: anyhow::Result<()>) -> anyhow::Result<Self> {
        match printed {
            Err(error) if !is_broken_pipe(&error) => Err(error),
            _ => Ok(self),
        }
    }
}

/// Exit status of a usage error; the command-line parser exits with it too.
const USAGE_STATUS: u8 = 2;

/// Prints the error, if there is one, and returns the exit status.
pub fn status(result: anyhow::Result<Outcome>, is_usage: fn(&anyhow::Error) -> bool) -> u8 {
    match result {
        Ok(Outcome::Fine) => 0,
        Ok(Outcome::Faulty) => 1,
        Ok(Outcome::Ended(status)) => status,
        // The reader closed the output, which is not an error.
        Err(error) if is_broken_pipe(&error) => 0,
        Err(error) => {
            note(one_line(&error));
            match is_usage(&error) {
                true => USAGE_STATUS,
                false => 1,
            }
        }
    }
}

/// A usage error: an invalid argument.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// An error and its causes on one line, without causes that the text already contains.
pub fn one_line(error: &anyhow::Error) -> String {
    error
        .chain()
        .map(ToString::to_string)
        .fold(String::new(), |line, cause| match line.as_str() {
            "" => cause,
            known if known.contains(&cause) => line,
            _ => format!("{line}: {cause}"),
        })
}

/// Whether the reader of standard output closed it.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
