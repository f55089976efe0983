//! LZ4 blocks, by the C library.
//!
//! Both functions bound every read by the input and every write by the output, whatever the block
//! says. LZ4 carries no checksum: garbage may decode to garbage.
//!
//! One kind of garbage needs care: a match at distance 0 copies the output onto itself. The
//! library accepts it. In a whole block it yields zeros, but at the end of a partial output it
//! would leave there what the memory held before, perhaps the content of another file.

use crate::Reason;

/// A block that fills `output` exactly and of which `input` is all.
pub(crate) fn whole(input: &[u8], output: &mut [u8]) -> Result<(), Reason> {
    filled(lzzzz::lz4::decompress(input, output), output.len())
}

/// The first bytes of a block. `input` may go on behind the block.
pub(crate) fn prefix(input: &[u8], output: &mut [u8]) -> Result<(), Reason> {
    let wanted = output.len();
    // See above. The price is a few per cent of the decoding.
    output.fill(0);
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
