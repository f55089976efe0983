//! LZ4, MicroLZMA, DEFLATE and Zstandard behind one decoder table: bytes in, bytes out.
//!
//! A [`Decoder`] belongs to one thread. It creates a codec's stream when that codec is first used
//! and keeps it, so a reader that never encounters MicroLZMA does not pay for its dictionary.
//!
//! ```
//! use erofs_codecs::{Codec, Decoder, Settings};
//!
//! let mut decoder = Decoder::new(Settings::default());
//! let mut output = [0; 3];
//! // One sequence of LZ4: three literals.
//! decoder.decode(Codec::Lz4, b"\x30abc", &mut output, false)?;
//! assert_eq!(&output, b"abc");
//! # Ok::<(), erofs_codecs::DecodeError>(())
//! ```
//!
//! # Whole streams and prefixes
//! EROFS stores how many bytes an extent decodes to, but never how many a stream holds. The caller
//! therefore passes an output of exactly the right length, and `partial` says whether the stream
//! may hold more:
//!
//! * `partial == false`: the stream must hold exactly `output.len()` bytes; more or fewer is an
//!   error.
//! * `partial == true`: the stream holds at least `output.len()` bytes; decoding stops there. This
//!   serves both deduplicated extents, which refer to the head of a longer stream, and readers that
//!   want only the first bytes of an extent. The rest of the stream is neither decoded nor checked.
//!
//! | codec | cost of the first bytes of a stream |
//! | --- | --- |
//! | LZ4, MicroLZMA | proportional to the output |
//! | DEFLATE | proportional to the output (with a different decoder than for whole streams) |
//! | Zstandard | whole blocks of up to 128 KiB decoded |
//!
//! # Padding
//! With `0padding`, the compressed bytes are at the end of their blocks, preceded by less than a
//! block of zero bytes, which [`Decoder::decode`] skips. A block of zeros, or nothing but zeros, is
//! an error. MicroLZMA, DEFLATE and Zstandard streams are always stored this way; LZ4 streams only
//! if [`Settings::lz4_zero_padding`] is set. Otherwise, an LZ4 stream begins at the first byte of
//! its blocks, and meaningless bytes follow it.
//!
//! # Memory
//! Memory per decoder, once the codec has been used: LZ4 none; DEFLATE 11 KiB for whole streams and
//! 48 KiB for prefixes; MicroLZMA 30 KiB and the dictionary (at most 8 MiB); Zstandard 160 KiB, and
//! at most another 1.4 MiB for prefixes. The output belongs to the caller, and nothing that a
//! stream declares makes a decoder use more memory.
#![forbid(unsafe_code)]

mod decoder;
mod deflate;
mod error;
mod lz4;
mod lzma;
mod padding;
mod settings;
mod zstd;

pub use decoder::Decoder;
pub use error::{DecodeError, Reason};
pub use settings::{
    Codec, LZMA_DICTIONARY_MAX, LZMA_DICTIONARY_MIN, Settings, ZSTD_WINDOW_LOG_MAX,
};
