//! Reads that need only the beginning of a pcluster, both stored and decoded.
//!
//! A random reader wants a page or two of a pcluster. On average that requires decoding half of the
//! pcluster and, with LZ4, fetching half of its stored bytes.

use std::sync::Arc;

use erofs_codecs::{Codec, Decoder};
use erofs_format::{Algorithm, Pcluster};
use figures::add;

use crate::read::FileReader;
use crate::read::claim::Decoded;
use crate::read::decode_context::DecodeContext;
use crate::read::segment::Segment;

/// Number of bytes decoded after the wanted ones: a record may begin anywhere in a page and extend
/// into the next page, which is requested next.
const NEXT_PAGE: usize = 4096;

/// Maximum number of zeros before an LZ4 stream: less than a block.
const PADDING: u64 = 4096;

/// Number of stored bytes that always suffices for the first page of an LZ4 stream.
const FIRST_PAGE: usize = 12 << 10;

impl FileReader<'_> {
    /// How many bytes to decode of a pcluster that will be cached: all, except for a random reader.
    /// A second read of the same pcluster shows that more is wanted.
    pub(crate) fn decoded_length(&self, segment: &Segment<'_>) -> usize {
        let whole = segment.pcluster.decoded_length as usize;
        let is_random = |random: &_| *random && !self.path.table.has(&self.key(&segment.pcluster));
        let random = self.page_cache.map(|cache| cache.is_random(self.inode.nid));
        match random.filter(is_random) {
            Some(_) => whole.min(segment.to() + NEXT_PAGE),
            None => whole,
        }
    }

    /// Fetches and decodes the beginning of an LZ4 pcluster for a random reader. Returns `None` if
    /// the whole pcluster must be fetched, because most of it is needed or its beginning compresses
    /// worse than the rest.
    pub(crate) fn decode_for_random(
        &self,
        context: &mut DecodeContext,
        segment: &mut Segment<'_>,
        algorithm: Algorithm,
    ) -> Option<Decoded> {
        let length = self.decoded_length(segment);
        let stored = stored_bytes(&segment.pcluster, length)?;
        if algorithm != Algorithm::Lz4 || length as u64 > self.path.table.capacity() {
            return None;
        }
        let mut buffer = self.buffer(length).ok()?;
        let DecodeContext { decoder, input } = context;
        let stored = input.first(stored);
        if !self.decode_beginning(decoder, &segment.pcluster, stored, &mut buffer) {
            return None;
        }
        segment.place(&buffer);
        Some(Arc::new(buffer))
    }

    /// Decodes the first page, or less, of an LZ4 pcluster into `out`; false for the same reasons
    /// as `decode_beginning`.
    pub(crate) fn decode_first_page(
        &self,
        decoder: &mut Decoder,
        pcluster: &Pcluster,
        out: &mut [u8],
    ) -> bool {
        let stored = &mut [0; FIRST_PAGE][..FIRST_PAGE.min(pcluster.length as usize)];
        self.decode_beginning(decoder, pcluster, stored, out)
    }

    /// Decodes the beginning of an LZ4 pcluster into `out`, from as many stored bytes as `stored`
    /// has room for. Returns false on failure: the read of all stored bytes that follows will
    /// report the error.
    fn decode_beginning(
        &self,
        decoder: &mut Decoder,
        pcluster: &Pcluster,
        stored: &mut [u8],
        out: &mut [u8],
    ) -> bool {
        let charged = self.within(self.request.charge((stored.len() + out.len()) as u64));
        let read = charged.and_then(|()| self.fetch_into(pcluster.location, stored));
        if read.is_err() || decoder.decode(Codec::Lz4, stored, out, true).is_err() {
            return false;
        }
        let counters = self.path.counters.own();
        add(&counters.fetched_bytes, stored.len() as u64);
        add(&counters.decodes, 1);
        add(&counters.prefix_decodes, 1);
        add(&counters.decoded_bytes, out.len() as u64);
        true
    }
}

/// Estimates how many stored bytes hold the first `decoded` bytes of an LZ4 stream, assuming
/// uniform compression, plus a quarter; `None` if that is most of the stream.
fn stored_bytes(pcluster: &Pcluster, decoded: usize) -> Option<usize> {
    let stored = u64::from(pcluster.length);
    let share = (stored * decoded as u64).checked_div(pcluster.decoded_length)?;
    let enough = PADDING + share + share / 4;
    (enough < stored / 8 * 7).then_some(enough as usize)
}

#[cfg(all(test, not(feature = "loom")))]
mod tests;
