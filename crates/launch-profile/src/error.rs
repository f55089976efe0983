//! Errors of reading a profile.

/// Why bytes are no profile. Each message is one line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It does not begin as one.
    #[error("not a launch profile: it does not begin as one")]
    Magic,
    /// Another version of the format.
    #[error("launch profile of version {0}, which this program does not read: it is learned anew")]
    Version(u16),
    /// More bytes than any profile has.
    #[error("a launch profile of {have} bytes or more; at most {limit} are read")]
    TooLarge {
        /// Bytes.
        have: usize,
        /// Bytes at most.
        limit: usize,
    },
    /// It ends too soon, or has something behind its end.
    #[error(
        "launch profile is cut short or has bytes behind its end: {have} bytes, {want} expected"
    )]
    Length {
        /// Bytes that are there.
        have: usize,
        /// Bytes that the header promises.
        want: usize,
    },
    /// The checksum differs.
    #[error("launch profile is damaged: checksum {have:016x}, {want:016x} expected")]
    Checksum {
        /// Of the bytes.
        have: u64,
        /// Stored.
        want: u64,
    },
    /// It was recorded from another image.
    #[error("launch profile of another image, whose UUID is {0}")]
    OtherImage(crate::identity::ImageIdentity),
    /// A line is malformed.
    #[error("launch profile is damaged at line {number}: {what}")]
    Line {
        /// From 1.
        number: usize,
        /// What is wrong.
        what: &'static str,
    },
}
