//! Errors of reading a profile.

/// The reason why bytes are not a profile. Each message is one line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not begin like a profile.
    #[error("not a launch profile: its first line is not 'erofast-launches VERSION'")]
    Magic,
    /// The profile has another version of the format.
    #[error(
        "launch profile of version {0}, which this program cannot read: launches will be \
         learned anew"
    )]
    Version(u16),
    /// The file is larger than a profile may be.
    #[error("a launch profile of at least {have} bytes; the limit is {limit}")]
    TooLarge {
        /// Number of bytes present.
        have: usize,
        /// Maximum number of bytes.
        limit: usize,
    },
    /// The profile was recorded from another image.
    #[error("launch profile of a different image (UUID {0})")]
    OtherImage(crate::identity::ImageIdentity),
    /// A line is malformed.
    #[error("launch profile is damaged at line {number}: {what}")]
    Line {
        /// The line's number, counting from 1.
        number: usize,
        /// What is wrong with the line.
        what: &'static str,
    },
}
