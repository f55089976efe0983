//! MicroLZMA, using liblzma.

use crate::{LZMA_DICTIONARY_MAX, LZMA_DICTIONARY_MIN, Reason};
use sys::microlzma::{MicroLzma, MicroLzmaError};

/// A stream that keeps its dictionary from block to block. Only the pages of the dictionary that a
/// block fills are ever touched.
pub(crate) struct Lzma(MicroLzma);

impl Lzma {
    pub(crate) fn new(dictionary: u32) -> Result<Self, Reason> {
        match dictionary {
            LZMA_DICTIONARY_MIN..=LZMA_DICTIONARY_MAX => Ok(Lzma(MicroLzma::new(dictionary))),
            ..LZMA_DICTIONARY_MIN => Ok(Lzma(MicroLzma::new(LZMA_DICTIONARY_MIN))),
            _ => Err(Reason::WindowTooLarge),
        }
    }

    /// Decodes a block; `exact` means that the block holds exactly `output.len()` bytes and is all
    /// of `input`.
    pub(crate) fn decode(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        exact: bool,
    ) -> Result<(), Reason> {
        self.0
            .decode(input, output, exact)
            .map_err(|error| match error {
                MicroLzmaError::Corrupted => Reason::Corrupted,
                MicroLzmaError::EndsEarly => Reason::Truncated,
                MicroLzmaError::OutOfMemory => Reason::OutOfMemory,
            })
    }
}
