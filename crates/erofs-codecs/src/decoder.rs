//! The decoder table: one entry a codec, made when first used.

use crate::{Codec, DecodeError, Settings};

/// Decoders of all codecs for the streams of one image, for one thread.
#[derive(Debug)]
pub struct Decoder {
    settings: Settings,
}

impl Decoder {
    /// A decoder without any streams yet. Nothing is allocated.
    pub fn new(settings: Settings) -> Self {
        Decoder { settings }
    }

    /// Fills `output` whole from `input`.
    ///
    /// `partial` says whether the stream may hold more than `output.len()` bytes; see the crate's
    /// documentation for that and for padding. An empty `output` needs nothing and succeeds.
    ///
    /// # Errors
    /// See [`Reason`](crate::Reason). After an error the content of `output` is unspecified, and
    /// the decoder is as good as new.
    pub fn decode(
        &mut self,
        codec: Codec,
        input: &[u8],
        output: &mut [u8],
        partial: bool,
    ) -> Result<(), DecodeError> {
        let _ = (&self.settings, codec, input, output, partial);
        unimplemented!()
    }
}
