//! LZ4 blocks, using the C library.
//!
//! Both functions bound every read by the input and every write by the output, whatever the block
//! contains. LZ4 carries no checksum: garbage may decode to other garbage without an error, except
//! in one case that [`prefix`] detects.

use crate::Reason;
use std::ops::Range;

/// Decodes a block that consists of all of `input` and fills `output` exactly.
pub(crate) fn whole(input: &[u8], output: &mut [u8]) -> Result<(), Reason> {
    filled(lzzzz::lz4::decompress(input, output), output.len())
}

/// Decodes the first bytes of a block. `input` may continue beyond the block.
///
/// One kind of garbage needs care. A match at distance 0 copies the output onto itself, which the
/// library accepts. In a whole block it yields zeros, but the last match of a partial output would
/// leave the memory's old contents there, possibly those of another file. The library treats the
/// last 12 bytes of the output separately, and such a match reaches into them. Therefore such a
/// match is either inside the [`TAIL`], where the only old bytes are marks, or leaves the marks at
/// [`WATCHED`] intact. In the second case the block is decoded again, into an output that holds
/// only marks. The tail allows for copies of up to 32 bytes, which the library makes before it
/// knows how many bytes it needs.
pub(crate) fn prefix(input: &[u8], output: &mut [u8]) -> Result<(), Reason> {
    let wanted = output.len();
    let tail = wanted.saturating_sub(TAIL);
    output[tail..].fill(MARK);
    decode_prefix(input, output)?;
    if tail > 0 && output[tail..][WATCHED].iter().all(|&byte| byte == MARK) {
        output.fill(MARK);
        decode_prefix(input, output)?;
    }
    Ok(())
}

/// A byte that rarely occurs eight times in a row.
const MARK: u8 = 0xa9;
/// Number of marked bytes at the end of the output.
const TAIL: usize = 128;
/// The marks that are checked afterwards.
const WATCHED: Range<usize> = TAIL - 32..TAIL - 24;

fn decode_prefix(input: &[u8], output: &mut [u8]) -> Result<(), Reason> {
    let wanted = output.len();
    filled(
        lzzzz::lz4::decompress_partial(input, output, wanted),
        wanted,
    )
}

fn filled(result: Result<usize, lzzzz::Error>, wanted: usize) -> Result<(), Reason> {
    match result {
        Ok(produced) if produced == wanted => Ok(()),
        Ok(produced) => Err(Reason::EndsEarly { produced }),
        Err(_) => Err(Reason::Corrupted),
    }
}
