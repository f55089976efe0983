//! Filling pieces: fetch the compressed bytes, decode them, put aside what will be asked for again.

use std::sync::Arc;

use erofs_codecs::{Codec, Decoder};
use erofs_format::{Algorithm, Coding, Image, Inode, Location, Pcluster, interlaced_offset};
use page_pool::{PageBuf, PagePool, Wait};

use crate::Error;
use crate::desk::{Desk, Desks};
use crate::device::Device;
use crate::page_cache::{PageCacheWriter, Remainder};
use crate::pcluster::{Claim, Decoded, Key, Landing, PclusterTable};
use crate::piece::Piece;
use crate::reuse::Reuse;
use crate::spans;
use crate::stats::{Counters, add};

/// Zstandard decodes in blocks of up to this many bytes (RFC 8878, 3.1.1.2.4), whole.
const ZSTD_BLOCK: u64 = 128 << 10;

/// Everything that filling needs of an opened image. I: all fields, but for what has a lock.
#[derive(Debug)]
pub(crate) struct Supply {
    /// The image's path, for messages.
    pub name: Arc<str>,
    /// The files; index 0 is the image itself.
    pub devices: Vec<Arc<Device>>,
    pub block_size: u64,
    pub desks: Desks,
    pub pool: Arc<PagePool>,
    pub table: PclusterTable,
    /// As much memory as may be kept: for what is kept, and what is decoded for the moment.
    pub cache_memory: Option<Arc<PagePool>>,
    pub counters: Counters,
}

/// The file that is read, and the image as far as it may be used for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub image: &'a Image,
    pub inode: &'a Inode,
    /// Who takes the rest of a pcluster that is read in part.
    pub page_cache: Option<&'a dyn PageCacheWriter>,
}

/// Compressed bytes at a desk: where they came from, and how many.
#[derive(Clone, Copy, Debug)]
struct Fetched {
    location: Location,
    length: u64,
}

impl Fetched {
    /// Where the bytes of `piece` are in the desk's input, if they are all there.
    fn range(&self, piece: &Piece<'_>) -> Option<std::ops::Range<usize>> {
        let at = piece.location();
        let same = (at.device, at.metabox) == (self.location.device, self.location.metabox);
        let start = at
            .physical
            .checked_sub(self.location.physical)
            .filter(|_| same)?;
        let end = start + u64::from(piece.pcluster.length);
        (end <= self.length).then_some(start as usize..end as usize)
    }
}

/// A compressed extent whose bytes are at a desk.
struct Stream<'a> {
    algorithm: Algorithm,
    /// First byte of the file that it decodes to.
    logical: u64,
    pcluster: Pcluster,
    input: &'a [u8],
}

/// Where the decoded bytes of a pcluster are, beside where the reader has them.
enum Made {
    /// In a buffer that is kept.
    Kept(Arc<Decoded>),
    /// In a buffer whose rest goes to the page cache.
    Remainder(Arc<Decoded>, Remainder),
    /// Nowhere else: from the first one on, they went straight to the reader.
    Delivered,
    /// In a buffer that nobody keeps.
    Passing(PageBuf),
}

impl Supply {
    /// Fills the pieces of one run (see [`crate::piece::runs`]); those of pclusters that another thread
    /// decodes just now only if it may `wait`. Tells whether all are filled.
    pub(crate) fn fill_run(
        &self,
        source: Source<'_>,
        run: &mut [Piece<'_>],
        wait: bool,
    ) -> Result<bool, Error> {
        self.desks.with(|desk| {
            let mut fetched = None;
            for index in 0..run.len() {
                if !run[index].filled {
                    let rest = &mut run[index..];
                    rest[0].filled = self.fill_piece(source, desk, &mut fetched, rest, wait)?;
                }
            }
            Ok(run.iter().all(|piece| piece.filled))
        })
    }

    /// Fills the first piece of `run`; the others only tell what to fetch along with it. False where
    /// another thread decodes it and this one may not wait.
    fn fill_piece(
        &self,
        source: Source<'_>,
        desk: &mut Desk,
        fetched: &mut Option<Fetched>,
        run: &mut [Piece<'_>],
        wait: bool,
    ) -> Result<bool, Error> {
        let Coding::Compressed(algorithm) = run[0].pcluster.coding else {
            return self.fill_plain(source, &mut run[0]).map(|()| true);
        };
        let key = Key::of(&run[0].pcluster);
        loop {
            let claim = match run[0].joined.take() {
                Some(flight) => Claim::InFlight(flight),
                None => self.table.claim(key, run[0].from..run[0].to()),
            };
            match claim {
                Claim::Kept(decoded) => {
                    add(&self.counters.cache_hits, 1);
                    copy_out(decoded.bytes(), &mut run[0]);
                    if run[0].to() as u64 >= run[0].pcluster.decoded_length {
                        self.table.finished(key);
                    }
                    return Ok(true);
                }
                Claim::InFlight(flight) if !wait => {
                    flight.join(run[0].to());
                    run[0].joined = Some(flight);
                    return Ok(false);
                }
                Claim::InFlight(flight) => {
                    if let Some(decoded) = flight.wait(run[0].to())? {
                        add(&self.counters.merged, 1);
                        copy_out(decoded.bytes(), &mut run[0]);
                        return Ok(true);
                    }
                }
                Claim::Yours(landing) => {
                    add(&self.counters.cache_misses, 1);
                    self.lead(source, desk, fetched, run, algorithm, landing)?;
                    return Ok(true);
                }
            }
        }
    }

    /// Decodes the first piece of `run` for all who want it.
    fn lead(
        &self,
        source: Source<'_>,
        desk: &mut Desk,
        fetched: &mut Option<Fetched>,
        run: &mut [Piece<'_>],
        algorithm: Algorithm,
        landing: Landing<'_>,
    ) -> Result<(), Error> {
        let result = self.fetch(source, desk, fetched, run).and_then(|range| {
            self.decode_piece(source, desk, range, &mut run[0], algorithm, &landing)
        });
        match result {
            Ok(Made::Kept(decoded)) => landing.keep(decoded),
            Ok(Made::Remainder(decoded, remainder)) => {
                landing.hand_over(decoded);
                if let Some(page_cache) = source.page_cache {
                    page_cache.store(remainder);
                }
            }
            Ok(Made::Delivered) => {
                landing.delivered(|wanted| self.put_aside(source, run[0].out, wanted));
            }
            Ok(Made::Passing(bytes)) => {
                landing.delivered(|wanted| self.put_aside(source, &bytes, wanted));
            }
            Err(error) => {
                landing.fail(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Decodes a piece: straight to its reader where that one takes all of it, else to a buffer,
    /// which is kept where it will be asked for again.
    fn decode_piece(
        &self,
        source: Source<'_>,
        desk: &mut Desk,
        range: std::ops::Range<usize>,
        piece: &mut Piece<'_>,
        algorithm: Algorithm,
        landing: &Landing<'_>,
    ) -> Result<Made, Error> {
        let Desk { decoder, input } = desk;
        let stream = Stream {
            algorithm,
            logical: piece.logical,
            pcluster: piece.pcluster,
            input: &input[range],
        };
        let whole = piece.pcluster.decoded_length as usize;
        if piece.out.len() < whole && source.page_cache.is_some_and(|cache| cache.has_room(whole)) {
            let mut buffer = self.buffer(source, whole)?;
            self.decode(source, decoder, &stream, &mut buffer)?;
            let decoded = Arc::new(Decoded::new(buffer));
            copy_out(decoded.bytes(), piece);
            let remainder = Remainder::new(
                source.inode,
                piece.logical,
                piece.from..piece.to(),
                decoded.clone(),
            );
            add(&self.counters.remainder, (whole - piece.out.len()) as u64);
            return Ok(Made::Remainder(decoded, remainder));
        }
        let length = worth_decoding(piece, algorithm, landing.reuse());
        if piece.from == 0 && piece.out.len() == length {
            if (length as u64) < piece.pcluster.decoded_length {
                landing.pass();
            }
            self.decode(source, decoder, &stream, piece.out)?;
            return Ok(Made::Delivered);
        }
        let mut buffer = self.buffer(source, length)?;
        self.decode(source, decoder, &stream, &mut buffer)?;
        copy_out(&buffer, piece);
        if landing.reuse().pays_keeping() {
            return Ok(Made::Kept(Arc::new(Decoded::new(buffer))));
        }
        landing.pass();
        Ok(Made::Passing(buffer))
    }

    /// Brings the compressed bytes of the run, from its first piece on, to the desk.
    fn fetch(
        &self,
        source: Source<'_>,
        desk: &mut Desk,
        fetched: &mut Option<Fetched>,
        run: &[Piece<'_>],
    ) -> Result<std::ops::Range<usize>, Error> {
        if let Some(range) = fetched.as_ref().and_then(|fetched| fetched.range(&run[0])) {
            return Ok(range);
        }
        *fetched = None;
        let location = run[0].location();
        let length: u64 = run
            .iter()
            .map(|piece| u64::from(piece.pcluster.length))
            .sum();
        let size = length as usize;
        if desk.input.len() < size {
            desk.input.resize(size, 0);
        }
        let start = spans::begin();
        self.read(source, location, &mut desk.input[..size])?;
        spans::end(start, "fetch", location.physical, length);
        add(&self.counters.fetched, length);
        *fetched = Some(Fetched { location, length });
        Ok(0..run[0].pcluster.length as usize)
    }

    /// Decodes the beginning of a stream, as much as `output` takes.
    fn decode(
        &self,
        source: Source<'_>,
        decoder: &mut Decoder,
        stream: &Stream<'_>,
        output: &mut [u8],
    ) -> Result<(), Error> {
        let pcluster = stream.pcluster;
        let short = (output.len() as u64) < pcluster.decoded_length;
        let codec = codec(stream.algorithm);
        add(&self.counters.decodes, 1);
        add(&self.counters.prefixes, u64::from(short));
        let start = spans::begin();
        decoder
            .decode(codec, stream.input, output, pcluster.partial || short)
            .map_err(|source_error| Error::Decode {
                image: self.name.clone(),
                nid: source.inode.nid,
                logical: stream.logical,
                location: pcluster.location,
                source: source_error,
            })?;
        let length = output.len() as u64;
        spans::end(start, "decompress", pcluster.location.physical, length);
        add(&self.counters.decoded, length);
        Ok(())
    }

    /// A buffer of `bytes`: of the pool, else of the cache's memory, else of the system.
    fn buffer(&self, source: Source<'_>, bytes: usize) -> Result<PageBuf, Error> {
        self.cache_memory
            .as_ref()
            .and_then(|memory| {
                let pool = self.pool.alloc_reserved(bytes, Wait::May);
                pool.or_else(|| self.displace_for(memory, bytes))
            })
            .or_else(|| self.pool.alloc(bytes, Wait::May))
            .ok_or_else(|| Error::Memory {
                image: self.name.clone(),
                nid: source.inode.nid,
                bytes,
            })
    }

    /// A buffer of the cache's memory, for which older pclusters go.
    fn displace_for(&self, memory: &Arc<PagePool>, bytes: usize) -> Option<PageBuf> {
        if bytes as u64 > self.table.budget() {
            return None;
        }
        loop {
            let buffer = memory.alloc_reserved(bytes, Wait::May);
            if buffer.is_some() || !self.table.displace_oldest() {
                return buffer;
            }
        }
    }

    /// A copy for readers who joined while the bytes went straight to the first one.
    fn put_aside(&self, source: Source<'_>, out: &[u8], wanted: usize) -> Option<Decoded> {
        if wanted > out.len() {
            return None;
        }
        let mut buffer = self.buffer(source, wanted).ok()?;
        buffer.copy_from_slice(&out[..wanted]);
        Some(Decoded::new(buffer))
    }

    /// Fills a piece of an uncompressed pcluster.
    fn fill_plain(&self, source: Source<'_>, piece: &mut Piece<'_>) -> Result<(), Error> {
        let Location { physical, .. } = piece.location();
        let (from, logical, pcluster) = (piece.from as u64, piece.logical, piece.pcluster);
        let rotated = |k| match pcluster.coding {
            Coding::Interlaced => {
                interlaced_offset(logical, k, self.block_size, u64::from(pcluster.length))
            }
            _ => k,
        };
        // At most one wrap: the bytes up to the end of the stored ones, then those from its start.
        let start = rotated(from);
        let until_wrap = u64::from(pcluster.length).saturating_sub(start);
        let split = piece.out.len().min(until_wrap as usize);
        let (first, second) = piece.out.split_at_mut(split);
        let at = |offset| Location {
            physical: physical + offset,
            ..pcluster.location
        };
        self.read(source, at(start), first)?;
        if second.is_empty() {
            Ok(())
        } else {
            self.read(source, at(0), second)
        }
    }

    /// Fills `buf` from a device or from the metabox.
    pub(crate) fn read(
        &self,
        source: Source<'_>,
        location: Location,
        buf: &mut [u8],
    ) -> Result<(), Error> {
        if location.metabox {
            return source
                .image
                .read_meta(true, buf, location.physical)
                .map_err(|error| self.inode_error(source.inode, error));
        }
        let length = buf.len() as u64;
        let device = self.devices.get(usize::from(location.device));
        device
            .ok_or_else(|| std::io::Error::other("no such device"))
            .and_then(|device| device.fetch(buf, location.physical))
            .map_err(|error| Error::Fetch {
                image: self.name.clone(),
                nid: source.inode.nid,
                location,
                length,
                source: Arc::new(error),
            })
    }

    /// An error of the format, with the inode it was met at.
    pub(crate) fn inode_error(&self, inode: &Inode, error: erofs_format::Error) -> Error {
        Error::Inode {
            image: self.name.clone(),
            nid: inode.nid,
            source: Arc::new(error),
        }
    }
}

fn copy_out(decoded: &[u8], piece: &mut Piece<'_>) {
    let range = piece.from..piece.to();
    piece.out.copy_from_slice(&decoded[range]);
}

/// Bytes to decode for a piece: up to its last one, or all of the pcluster.
fn worth_decoding(piece: &Piece<'_>, algorithm: Algorithm, reuse: Reuse) -> usize {
    let (to, whole) = (piece.to() as u64, piece.pcluster.decoded_length);
    let needed = match algorithm {
        Algorithm::Lz4 | Algorithm::Lzma => to,
        Algorithm::Zstd => to.next_multiple_of(ZSTD_BLOCK),
        // The decoder that can stop takes a quarter longer than the one that cannot.
        Algorithm::Deflate => to + to / 4,
    };
    if needed < whole && !reuse.pays_whole(needed, whole) {
        piece.to()
    } else {
        whole as usize
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
