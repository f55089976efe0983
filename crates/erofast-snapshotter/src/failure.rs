//! The reasons why a call failed: one line, and the kind that containerd acts on.

use std::fmt::Display;

/// An error of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The snapshot already exists.
    #[error("{0}: already exists")]
    AlreadyExists(String),
    /// No snapshot has this name.
    #[error("{0}: not found")]
    NotFound(String),
    /// The snapshot is not of the kind that the call needs.
    #[error("{0}")]
    Precondition(String),
    /// The request is not valid.
    #[error("{0}")]
    Invalid(String),
    /// A layer cannot be mounted now.
    #[error("{0}")]
    Unavailable(String),
    /// An operation on a file or the database failed.
    #[error("{0}")]
    Internal(String),
}

impl Failure {
    /// For `map_err`: names the operation that failed.
    pub fn at<E: Display>(what: impl Display) -> impl FnOnce(E) -> Self {
        move |error| Self::Internal(format!("{what}: {error}"))
    }
}
