//! Decodes stored bytes: selects the codec, the number of bytes, and the memory to decode into.

use erofs_codecs::{Codec, Decoder};
use erofs_format::Algorithm;
use figures::add;

use crate::read::FileReader;
use crate::read::kept::key;
use crate::read::segment::{Segment, cost};
use crate::{FileFault, Result};

impl FileReader<'_> {
    /// Decodes the beginning of the pcluster of `segment`: as much as `output` holds or, without an
    /// `output`, directly into the segment's own bytes.
    pub(crate) fn decode(
        &self,
        decoder: &mut Decoder,
        algorithm: Algorithm,
        input: &[u8],
        segment: &mut Segment<'_>,
        output: Option<&mut [u8]>,
    ) -> Result<()> {
        let (logical, pcluster) = (segment.logical, segment.pcluster);
        let output = match output {
            Some(output) => output,
            None => &mut *segment.out,
        };
        let length = output.len() as u64;
        let short = length < pcluster.decoded_length;
        let cost = cost(algorithm, length);
        self.within(self.request.charge_decoding(length, cost))?;
        if let Some(kept) = self.path.kept.get() {
            let key = key(kept.seed(), algorithm, &pcluster, input);
            if kept.read(key, output, self.sink.is_some()) {
                return Ok(());
            }
        }
        let counters = self.path.counters.own();
        add(&counters.decodes, 1);
        add(&counters.prefix_decodes, u64::from(short));
        let spans = &self.path.spans;
        let start = spans.begin();
        decoder
            .decode(codec(algorithm), input, output, pcluster.partial || short)
            .map_err(|source| {
                self.error(FileFault::Decode {
                    logical,
                    location: pcluster.location,
                    source,
                })
            })?;
        spans.end(start, "decompress", pcluster.location.physical, length);
        add(&counters.decoded_bytes, length);
        Ok(())
    }
}

/// The codec of an algorithm.
pub fn codec(algorithm: Algorithm) -> Codec {
    match algorithm {
        Algorithm::Lz4 => Codec::Lz4,
        Algorithm::Lzma => Codec::Lzma,
        Algorithm::Deflate => Codec::Deflate,
        Algorithm::Zstd => Codec::Zstd,
    }
}
