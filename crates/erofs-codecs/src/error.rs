//! The reason why a stream could not be decoded.

use crate::Codec;

/// Why a stream could not be decoded, on one line. The caller adds where the stream came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{codec}: {reason} ({input} bytes in, {output} bytes wanted)")]
#[non_exhaustive]
pub struct DecodeError {
    /// The codec that was used.
    pub codec: Codec,
    /// The reason.
    pub reason: Reason,
    /// Bytes of compressed input, padding included.
    pub input: usize,
    /// Bytes of output that were wanted.
    pub output: usize,
}

/// Reasons why a stream could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// There was no input at all.
    #[error("no compressed data")]
    Empty,
    /// A whole block of zeros, or nothing but zeros, instead of padding followed by a stream.
    #[error("the first block contains only zeros")]
    AllZero,
    /// The decoder found something that its format does not allow.
    #[error("corrupted compressed data")]
    Corrupted,
    /// The input ended inside the stream.
    #[error("the input ends within the stream")]
    Truncated,
    /// The stream ended before the output was full.
    #[error("the stream ends after {produced} decoded bytes")]
    EndsEarly {
        /// Number of bytes that the stream decoded to.
        produced: usize,
    },
    /// The output was full before the end of a stream that had to be decoded whole.
    #[error("the stream continues after the output is complete")]
    TooLong,
    /// The stream needs more than the image declares or the format allows.
    #[error("dictionary or window larger than allowed")]
    WindowTooLarge,
    /// The input or the output is 2 GiB or more, larger than any EROFS extent.
    #[error("larger than any EROFS extent")]
    TooLarge,
    /// The decoder's own memory could not be allocated.
    #[error("out of memory")]
    OutOfMemory,
}
