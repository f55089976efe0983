//! Places decoded bytes in the reader's buffer, the pcluster cache or the page cache.

use std::sync::Arc;

use erofs_codecs::Decoder;
use erofs_format::{Algorithm, Coding};
use figures::add;
use page_pool::PageBuf;

use crate::Result;
use crate::read::FileReader;
use crate::read::claim::{Claim, DecodeLease, Decoded};
use crate::read::decode_context::{DecodeContext, LentContext};
use crate::read::fetch::Stored;
use crate::read::kept::{self, DecodedSink};
use crate::read::page_cache::{PageCacheWriter, Remainder};
use crate::read::segment::Segment;

/// A sink receives at least this many bytes of a longer pcluster, even if fewer are wanted now: the
/// rest may be wanted soon.
const SINK_BYTES: usize = 1 << 20;

/// Where the decoded bytes of a pcluster are, apart from the reader's buffer.
enum Placement {
    /// In a buffer for the cache.
    Cached(Decoded),
    /// In a buffer that is not cached; a remainder goes to the page cache.
    Uncached(Decoded, Option<Remainder>),
    /// Nowhere else: they were decoded directly into the reader's buffer, from the first byte on.
    Direct,
}

impl FileReader<'_> {
    /// Fills the segments of one run (see [`runs`](crate::read::segment::runs)). Skips pclusters
    /// that another thread is decoding, unless `wait` is true. Returns whether all segments are
    /// filled.
    pub(crate) fn decompress_run(&self, run: &mut [Segment<'_>], wait: bool) -> Result<bool> {
        let (mut context, mut stored) = (self.path.contexts.lend(), None);
        for index in 0..run.len() {
            if !run[index].filled {
                let rest = &mut run[index..];
                rest[0].filled = self.claim(&mut context, &mut stored, rest, wait)?;
            }
        }
        Ok(run.iter().all(|segment| segment.filled))
    }

    /// Fills the first segment of `run`; the other segments only extend the range that is fetched.
    /// Returns false if another thread is decoding the segment's pcluster and the calling thread
    /// may not wait.
    fn claim(
        &self,
        context: &mut LentContext<'_>,
        stored: &mut Option<Stored>,
        run: &mut [Segment<'_>],
        wait: bool,
    ) -> Result<bool> {
        let Coding::Compressed(algorithm) = run[0].pcluster.coding else {
            return self.fetch_plain(&mut run[0]).map(|()| true);
        };
        if let Some(sink) = self.sink {
            self.decode_for_sink(context.get(), stored, run, algorithm, sink)?;
            return Ok(true);
        }
        let (key, table) = (self.key(&run[0].pcluster), &self.path.table);
        loop {
            if run[0].joined.is_some() && !wait {
                return Ok(false);
            }
            let joined = run[0].joined.take();
            if let Some(decoded) = joined.and_then(|in_flight| in_flight.wait(run[0].to())) {
                add(&self.path.counters.own().merged, 1);
                run[0].place(&decoded);
                return Ok(true);
            }
            match table.claim(key, run[0].to()) {
                Claim::Cached(cached) => {
                    add(&self.path.counters.own().cache.hits, 1);
                    run[0].place(&cached);
                    return Ok(true);
                }
                Claim::InFlight(in_flight) => {
                    in_flight.join(run[0].to());
                    run[0].joined = Some(in_flight);
                }
                Claim::Leader(lease) => {
                    add(&self.path.counters.own().cache.misses, 1);
                    self.decode_claimed(context.get(), stored, run, algorithm, lease)?;
                    return Ok(true);
                }
            }
        }
    }

    /// Decodes the pcluster of the first segment of `run` for a sink, even if it is cached or
    /// another thread is decoding it. The reader's bytes are not filled.
    fn decode_for_sink(
        &self,
        context: &mut DecodeContext,
        stored: &mut Option<Stored>,
        run: &mut [Segment<'_>],
        algorithm: Algorithm,
        sink: &dyn DecodedSink,
    ) -> Result<()> {
        let range = self.fetch(&mut context.input, stored, run)?;
        let DecodeContext { decoder, input } = context;
        let (input, pcluster) = (&input.bytes()[range], run[0].pcluster);
        let key = kept::key(sink.seed(), algorithm, &pcluster, input);
        if !sink.wants(key, run[0].to()) {
            return Ok(());
        }
        let length = run[0].to().max(SINK_BYTES);
        let mut buffer = self.buffer(length.min(pcluster.decoded_length as usize))?;
        self.decode(decoder, algorithm, input, &mut run[0], Some(&mut buffer))?;
        sink.keep(key, &buffer);
        Ok(())
    }

    /// Decodes the pcluster of the first segment of `run` for all readers that wait for it. If that
    /// fails, they decode it themselves, because each may need less of it and has its own budget.
    fn decode_claimed(
        &self,
        context: &mut DecodeContext,
        stored: &mut Option<Stored>,
        run: &mut [Segment<'_>],
        algorithm: Algorithm,
        lease: DecodeLease<'_>,
    ) -> Result<()> {
        if let (None, [segment]) = (&stored, &mut *run)
            && let Some(decoded) = self.decode_for_random(context, segment, algorithm)
        {
            lease.cache(decoded);
            return Ok(());
        }
        let range = self.fetch(&mut context.input, stored, run)?;
        match self.decode_segment(context, range, &mut run[0], algorithm)? {
            Placement::Cached(decoded) => lease.cache(decoded),
            Placement::Uncached(decoded, remainder) => {
                lease.publish(decoded);
                if let Some((page_cache, remainder)) = self.page_cache.zip(remainder) {
                    page_cache.store(remainder);
                }
            }
            Placement::Direct => {
                lease.delivered(|wanted| self.copy_prefix(run[0].out, wanted));
            }
        }
        Ok(())
    }

    /// Decodes a segment: directly into the reader's buffer if the segment takes all decoded bytes,
    /// else into a separate buffer. A pcluster that fits into the cache is decoded entirely and
    /// cached (see [`decoded_length`](Self::decoded_length)), a larger one up to the last wanted
    /// byte.
    fn decode_segment(
        &self,
        context: &mut DecodeContext,
        range: std::ops::Range<usize>,
        segment: &mut Segment<'_>,
        algorithm: Algorithm,
    ) -> Result<Placement> {
        let DecodeContext { decoder, input } = context;
        let input = &input.bytes()[range];
        let whole = segment.pcluster.decoded_length as usize;
        let stores = |cache: &dyn PageCacheWriter| {
            segment.out.len() < whole
                && self.has_own_page(segment)
                && cache.has_room(self.inode.nid, whole)
        };
        if self.page_cache.is_some_and(stores) {
            return self.decode_for_storing(decoder, algorithm, input, segment);
        }
        let fits = whole as u64 <= self.path.table.capacity();
        let length = match fits {
            true => self.decoded_length(segment),
            false => segment.to(),
        };
        if segment.from == 0 && segment.out.len() == length {
            self.decode(decoder, algorithm, input, segment, None)?;
            return Ok(Placement::Direct);
        }
        let mut buffer = self.buffer(length)?;
        self.decode(decoder, algorithm, input, segment, Some(&mut buffer))?;
        segment.place(&buffer);
        let decoded = Arc::new(buffer);
        Ok(match fits {
            true => Placement::Cached(decoded),
            false => Placement::Uncached(decoded, None),
        })
    }

    /// Decodes the whole pcluster, and the part of the next one that fills its last page. The bytes
    /// around those of `segment` are for the page cache.
    fn decode_for_storing(
        &self,
        decoder: &mut Decoder,
        algorithm: Algorithm,
        input: &[u8],
        segment: &mut Segment<'_>,
    ) -> Result<Placement> {
        let whole = segment.pcluster.decoded_length as usize;
        let next = self.shared_with_next(segment);
        let mut buffer = self.buffer(whole + next.map_or(0, |(_, bytes)| bytes))?;
        let (own, shared) = buffer.split_at_mut(whole);
        self.decode(decoder, algorithm, input, segment, Some(own))?;
        if !next.is_some_and(|(next, _)| self.decode_first_page(decoder, &next, shared)) {
            buffer.resize(whole);
        }
        segment.place(&buffer);
        let (decoded, served) = (Arc::new(buffer), segment.from..segment.to());
        let beyond = decoded.len() - served.len();
        add(&self.path.counters.own().surplus_bytes, beyond as u64);
        let remainder = Remainder::new(self.inode, segment.logical, served, decoded.clone());
        Ok(Placement::Uncached(decoded, Some(remainder)))
    }

    /// A copy of the first `wanted` bytes, for readers that joined while the pcluster was being
    /// decoded.
    fn copy_prefix(&self, bytes: &[u8], wanted: usize) -> Option<PageBuf> {
        let prefix = bytes.get(..wanted)?;
        let mut buffer = self.buffer(wanted).ok()?;
        buffer.copy_from_slice(prefix);
        Some(buffer)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crate::{Engine, EngineOptions, WorkersMode};

    fn opened(cache_bytes: u64) -> Arc<Engine> {
        let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures");
        let options = EngineOptions {
            workers: WorkersMode::Inline,
            cache_bytes,
            ..EngineOptions::default()
        };
        let image = images.join("lz4-full-index-64k.erofs");
        Engine::open(&image, &options).unwrap()
    }

    /// Reads two pages of one pcluster.
    fn read_pages(engine: &Engine) {
        let file = engine.resolve(b"/mixed-90000", true).unwrap();
        for offset in [0, 4096] {
            let read = engine.read_at(&engine.waiting(), &file, offset, &mut [0; 4096]);
            assert_eq!(read.unwrap(), 4096);
        }
    }

    /// Decoder calls, and the number of bytes decoded, for two pages of one pcluster.
    fn decoded_with(cache_bytes: u64) -> (u64, u64) {
        let engine = opened(cache_bytes);
        read_pages(&engine);
        let stats = engine.stats();
        (stats.decodes, stats.decoded_bytes)
    }

    #[test]
    fn a_pcluster_that_fits_into_the_cache_is_decoded_whole_and_once() {
        let (decodes, bytes) = decoded_with(1 << 20);
        assert!(decodes == 1 && bytes > 8192, "{decodes} {bytes}");
    }

    #[test]
    fn a_pcluster_that_does_not_is_decoded_up_to_the_last_byte_that_is_read() {
        assert_eq!(decoded_with(0), (2, 4096 + 8192));
    }

    #[test]
    fn each_engine_of_a_process_has_trace_spans_of_its_own() {
        let (traced, other) = (opened(0), opened(0));
        traced.trace_spans().take(0);
        read_pages(&traced);
        read_pages(&other);
        assert!(!other.trace_spans().wanted());
        let (spans, lost) = traced.trace_spans().take(usize::MAX);
        let decoded = spans.iter().filter(|span| span.name == "decompress");
        assert_eq!((decoded.count(), lost), (2, 0));
    }
}
