//! Raw DEFLATE with two decoders.
//!
//! libdeflate is faster for whole streams but cannot stop early: it fails if the output is too
//! small. zlib-rs can stop anywhere. `cargo bench -p erofs-codecs` compares them.

use crate::Reason;
use libdeflater::{DecompressionError, Decompressor};
use zlib_rs::{Inflate, InflateError, InflateFlush, Status};

/// Binary logarithm of the largest window of DEFLATE.
const WINDOW_BITS: u8 = 15;

/// Both decoders, each created on first use.
#[derive(Default)]
pub(crate) struct Deflate {
    whole: Option<Decompressor>,
    prefix: Option<Inflate>,
}

impl Deflate {
    /// Decodes a stream that must fill `output` exactly.
    pub(crate) fn whole(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), Reason> {
        let decoder = self.whole.get_or_insert_with(Decompressor::new);
        match decoder.deflate_decompress(input, output) {
            Ok(produced) if produced == output.len() => Ok(()),
            Ok(produced) => Err(Reason::EndsEarly { produced }),
            Err(DecompressionError::InsufficientSpace) => Err(Reason::TooLong),
            Err(DecompressionError::BadData) => Err(Reason::Corrupted),
        }
    }

    /// Decodes the first bytes of a stream.
    pub(crate) fn prefix(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), Reason> {
        let decoder = match &mut self.prefix {
            Some(used) => {
                used.reset(false);
                used
            }
            empty => empty.insert(Inflate::new(false, WINDOW_BITS)),
        };
        // One call continues as long as input and output allow, so no loop needs a limit.
        let status = decoder.decompress(input, output, InflateFlush::SyncFlush);
        let produced = decoder.total_out() as usize;
        match status {
            Ok(_) if produced == output.len() => Ok(()),
            Ok(Status::StreamEnd) => Err(Reason::EndsEarly { produced }),
            Ok(Status::Ok | Status::BufError) => Err(Reason::Truncated),
            Err(InflateError::MemError) => Err(Reason::OutOfMemory),
            Err(_) => Err(Reason::Corrupted),
        }
    }
}
