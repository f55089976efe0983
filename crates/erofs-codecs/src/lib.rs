//! LZ4, MicroLZMA, DEFLATE and Zstandard behind one decoder table: bytes in, bytes out.
//!
//! A [`Decoder`] belongs to one thread. It makes the stream of a codec at the first use of that
//! codec and keeps it, so that a reader that never meets MicroLZMA never pays for its dictionary.
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
//! EROFS stores how many bytes an extent decodes to, never how many a stream holds. So the caller
//! passes the exact output, and `partial` defines the meaning of its end:
//!
//! * `partial == false`: the stream must hold exactly `output.len()` bytes. More or fewer is an
//!   error.
//! * `partial == true`: the stream holds at least `output.len()` bytes; decoding stops there.
//!   This serves both deduplicated extents, which refer to the head of a longer stream, and
//!   readers that want only the first bytes of an extent. What lies behind the output is neither
//!   decoded nor checked.
//!
//! | codec | cost of the first bytes of a stream |
//! | --- | --- |
//! | LZ4, MicroLZMA | proportional to the output |
//! | DEFLATE | proportional to the output (another decoder than for whole streams) |
//! | Zstandard | whole blocks of up to 128 KiB decoded |
//!
//! # Padding
//! With `0padding` the compressed bytes stand at the end of their blocks: fewer than a block of
//! zero bytes come first, and [`Decoder::decode`] skips them. A block of zeros, or nothing but
//! zeros, is an error. MicroLZMA, DEFLATE and Zstandard are always stored like this; LZ4 is
//! with [`Settings::lz4_zero_padding`]. Otherwise LZ4 streams begin at the
//! first byte, and bytes of no meaning follow.
//!
//! # Memory
//! Per decoder, once the codec was used: LZ4 nothing; DEFLATE 11 KiB for whole streams and 48 KiB
//! for prefixes; MicroLZMA 30 KiB and the dictionary (at most 8 MiB); Zstandard 160 KiB, and
//! 1.4 MiB more at most for prefixes. The output is the caller's, and nothing grows with what a
//! stream claims.
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
