//! Decompressing pieces of traces, with a bound.

use std::io::Read;

/// The most that one compressed piece may become.
const PIECE: usize = 64 << 20;

/// Raw DEFLATE with a zlib header, as Perfetto and trace-cmd write it.
pub(crate) fn deflate(bytes: &[u8]) -> Option<Vec<u8>> {
    miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(bytes, PIECE).ok()
}

/// One zstd frame.
pub(crate) fn zstd(bytes: &[u8]) -> Option<Vec<u8>> {
    let decoder = ruzstd::decoding::StreamingDecoder::new(bytes).ok()?;
    let mut out = Vec::new();
    let got = decoder.take(PIECE as u64 + 1).read_to_end(&mut out).ok()?;
    (got <= PIECE).then_some(out)
}
