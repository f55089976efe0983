//! Decompresses parts of traces within bounds.

use super::limits::ReadOptions;
use crate::error::Fault;
use std::io::Read;

/// Largest unpacked size of one compressed part.
const PART: usize = 64 << 20;

/// Unpacks a zlib stream, as written by Perfetto and trace-cmd. `None` if it is damaged or too big.
pub(crate) fn deflate(bytes: &[u8], limits: &mut ReadOptions) -> Result<Option<Vec<u8>>, Fault> {
    let bound = bound(limits);
    let unpacked = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(bytes, bound).ok();
    charge(unpacked, limits)
}

/// Unpacks one zstd frame. `None` if it is damaged or too big.
pub(crate) fn zstd(bytes: &[u8], limits: &mut ReadOptions) -> Result<Option<Vec<u8>>, Fault> {
    let bound = bound(limits);
    let unpacked = ruzstd::decoding::StreamingDecoder::new(bytes)
        .ok()
        .and_then(|decoder| {
            let mut out = Vec::new();
            let got = decoder.take(bound as u64 + 1).read_to_end(&mut out).ok()?;
            (got <= bound).then_some(out)
        });
    charge(unpacked, limits)
}

fn bound(limits: &ReadOptions) -> usize {
    usize::try_from(limits.max_unpacked_bytes).map_or(PART, |left| left.min(PART))
}

fn charge(unpacked: Option<Vec<u8>>, limits: &mut ReadOptions) -> Result<Option<Vec<u8>>, Fault> {
    if let Some(unpacked) = &unpacked {
        limits.unpack(unpacked.len())?;
    }
    Ok(unpacked)
}
