//! The decoder table: one entry per codec, created on first use.

use std::fmt;

use crate::{Codec, DecodeError, Reason, Settings};
use crate::{deflate::Deflate, lz4, lzma::Lzma, padding, zstd::Zstd};

/// Maximum length of input and output, because the C decoders use `int`. No EROFS extent comes near
/// this.
const LONGEST: usize = i32::MAX as usize;

/// Decoders of all codecs for the streams of one image, for one thread.
pub struct Decoder {
    settings: Settings,
    // LZ4 keeps no state between two blocks.
    lzma: Option<Lzma>,
    deflate: Deflate,
    zstd: Option<Zstd>,
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decoder({:?})", self.settings)
    }
}

impl Decoder {
    /// Creates a decoder without streams; nothing is allocated.
    pub fn new(settings: Settings) -> Self {
        Decoder {
            settings,
            lzma: None,
            deflate: Deflate::default(),
            zstd: None,
        }
    }

    /// Fills all of `output` from `input`.
    ///
    /// `partial` says whether the stream may hold more than `output.len()` bytes; the crate's
    /// documentation explains both this and padding. Decoding into an empty `output` always
    /// succeeds.
    ///
    /// # Errors
    /// See [`Reason`]. After an error the content of `output` is unspecified, but the decoder
    /// remains usable.
    pub fn decode(
        &mut self,
        codec: Codec,
        input: &[u8],
        output: &mut [u8],
        partial: bool,
    ) -> Result<(), DecodeError> {
        let sizes = (input.len(), output.len());
        self.dispatch(codec, input, output, partial)
            .map_err(|reason| DecodeError {
                codec,
                reason,
                input: sizes.0,
                output: sizes.1,
            })
    }

    fn dispatch(
        &mut self,
        codec: Codec,
        input: &[u8],
        output: &mut [u8],
        partial: bool,
    ) -> Result<(), Reason> {
        if output.is_empty() {
            return Ok(());
        }
        if input.len() > LONGEST || output.len() > LONGEST {
            return Err(Reason::TooLarge);
        }
        // Without padding, LZ4 blocks are followed by meaningless bytes, and only the length of the
        // output ends decoding.
        let open_end = codec == Codec::Lz4 && !self.settings.lz4_zero_padding;
        let stream = match open_end {
            true if input.is_empty() => return Err(Reason::Empty),
            true => input,
            false => padding::skip(input, self.settings.block_size)?,
        };
        match (codec, partial || open_end) {
            (Codec::Lz4, false) => lz4::whole(stream, output),
            (Codec::Lz4, true) => lz4::prefix(stream, output),
            (Codec::Lzma, partial) => self.lzma()?.decode(stream, output, !partial),
            (Codec::Deflate, false) => self.deflate.whole(stream, output),
            (Codec::Deflate, true) => self.deflate.prefix(stream, output),
            (Codec::Zstd, false) => self.zstd()?.whole(stream, output),
            (Codec::Zstd, true) => self.zstd()?.prefix(stream, output),
        }
    }

    fn lzma(&mut self) -> Result<&mut Lzma, Reason> {
        match &mut self.lzma {
            Some(lzma) => Ok(lzma),
            empty => Ok(empty.insert(Lzma::new(self.settings.lzma_dictionary)?)),
        }
    }

    fn zstd(&mut self) -> Result<&mut Zstd, Reason> {
        match &mut self.zstd {
            Some(zstd) => Ok(zstd),
            empty => Ok(empty.insert(Zstd::new(self.settings.zstd_window_log)?)),
        }
    }
}
