//! Filling pieces: fetch the compressed bytes, decode them, put aside what will be asked for again.

use std::sync::Arc;

use erofs_codecs::Codec;
use erofs_format::{Algorithm, Coding, Image, Inode, Location, interlaced_offset};
use page_pool::{PageBuf, PagePool, Wait};

use crate::Error;
use crate::desk::{Desk, Desks};
use crate::device::Device;
use crate::pcluster::{Claim, Decoded, Key, Landing, PclusterTable};
use crate::piece::Piece;
use crate::stats::{Counters, add};

/// A read of at most this many bytes near the beginning of a pcluster decodes no further than it
/// needs; see [`Supply::prefix_is_enough`].
const SMALL_READ: usize = 16 << 10;

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
    pub counters: Counters,
}

/// The file that is read, and the image as far as it may be used for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub image: &'a Image,
    pub inode: &'a Inode,
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

impl Supply {
    /// Fills the pieces of one run (see [`crate::piece::runs`]).
    pub(crate) fn fill_run(&self, source: Source<'_>, run: &mut [Piece<'_>]) -> Result<(), Error> {
        self.desks.with(|desk| {
            let mut fetched = None;
            (0..run.len()).try_for_each(|index| {
                self.fill_piece(source, desk, &mut fetched, &mut run[index..])
            })
        })
    }

    /// Fills the first piece of `run`; the others only tell what to fetch along with it.
    fn fill_piece(
        &self,
        source: Source<'_>,
        desk: &mut Desk,
        fetched: &mut Option<Fetched>,
        run: &mut [Piece<'_>],
    ) -> Result<(), Error> {
        let Coding::Compressed(algorithm) = run[0].pcluster.coding else {
            return self.fill_plain(source, &mut run[0]);
        };
        let key = Key::of(&run[0].pcluster);
        loop {
            match self.table.claim(key, run[0].to()) {
                Claim::Kept(decoded) => {
                    add(&self.counters.cache_hits, 1);
                    copy_out(&decoded, &mut run[0]);
                    if run[0].to() as u64 >= run[0].pcluster.decoded_length {
                        self.table.finished(key);
                    }
                    return Ok(());
                }
                Claim::InFlight(flight) => {
                    if let Some(decoded) = flight.wait(run[0].to())? {
                        add(&self.counters.merged, 1);
                        copy_out(&decoded, &mut run[0]);
                        return Ok(());
                    }
                }
                Claim::Yours(landing) => {
                    add(&self.counters.cache_misses, 1);
                    return self.lead(source, desk, fetched, run, algorithm, landing);
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
        let decoded = self.fetch(source, desk, fetched, run).and_then(|range| {
            let piece = &mut run[0];
            if piece.from == 0 && self.goes_straight_out(piece, algorithm) {
                self.decode(source, desk, range, algorithm, piece, None)?;
                return Ok(None);
            }
            let length = self.worth_decoding(piece, algorithm);
            let mut buffer = self.buffer(source, length)?;
            self.decode(
                source,
                desk,
                range,
                algorithm,
                piece,
                Some(&mut buffer[..length]),
            )?;
            let decoded = Arc::new(Decoded::new(buffer, length));
            copy_out(&decoded, piece);
            Ok(Some(decoded))
        });
        match decoded {
            Ok(Some(decoded)) => landing.keep(decoded),
            Ok(None) => landing.delivered(|wanted| self.put_aside(source, run[0].out, wanted)),
            Err(error) => {
                landing.fail(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether the reader takes everything that is to be decoded.
    fn goes_straight_out(&self, piece: &Piece<'_>, algorithm: Algorithm) -> bool {
        piece.out.len() as u64 == piece.pcluster.decoded_length
            || self.prefix_is_enough(piece, algorithm)
    }

    /// Bytes to decode for a piece that is not the whole extent.
    fn worth_decoding(&self, piece: &Piece<'_>, algorithm: Algorithm) -> usize {
        if self.prefix_is_enough(piece, algorithm) {
            piece.to()
        } else {
            piece.pcluster.decoded_length as usize
        }
    }

    /// A small read in the first quarter of a pcluster stops where it has what it wants. If the
    /// rest is read later after all, at most a quarter was decoded twice. Zstandard decodes in
    /// blocks of up to 128 KiB, so there is little to gain.
    fn prefix_is_enough(&self, piece: &Piece<'_>, algorithm: Algorithm) -> bool {
        algorithm != Algorithm::Zstd
            && piece.out.len() <= SMALL_READ
            && piece.to() as u64 * 4 <= piece.pcluster.decoded_length
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
        self.read(source, location, &mut desk.input[..size])?;
        add(&self.counters.fetched, length);
        *fetched = Some(Fetched { location, length });
        Ok(0..run[0].pcluster.length as usize)
    }

    /// Decodes into `buffer`, or into the piece's own bytes.
    fn decode(
        &self,
        source: Source<'_>,
        desk: &mut Desk,
        input: std::ops::Range<usize>,
        algorithm: Algorithm,
        piece: &mut Piece<'_>,
        buffer: Option<&mut [u8]>,
    ) -> Result<(), Error> {
        let (logical, pcluster) = (piece.logical, piece.pcluster);
        let output = buffer.unwrap_or(piece.out);
        let short = (output.len() as u64) < pcluster.decoded_length;
        add(&self.counters.decodes, 1);
        add(&self.counters.prefixes, u64::from(short));
        desk.decoder
            .decode(
                codec(algorithm),
                &desk.input[input],
                output,
                pcluster.partial || short,
            )
            .map_err(|source_error| Error::Decode {
                image: self.name.clone(),
                nid: source.inode.nid,
                logical,
                location: pcluster.location,
                source: source_error,
            })?;
        add(&self.counters.decoded, output.len() as u64);
        Ok(())
    }

    /// A buffer of at least `bytes`: of a pcluster that must go, of the pool, of the system.
    fn buffer(&self, source: Source<'_>, bytes: usize) -> Result<PageBuf, Error> {
        if let Some(buffer) = self.table.recycle(bytes) {
            return Ok(buffer);
        }
        self.pool
            .alloc(bytes, Wait::May)
            .ok_or_else(|| Error::Memory {
                image: self.name.clone(),
                nid: source.inode.nid,
                bytes,
            })
    }

    /// A copy for readers who joined while the bytes went straight to the first one.
    fn put_aside(&self, source: Source<'_>, out: &[u8], wanted: usize) -> Option<Decoded> {
        if wanted > out.len() {
            return None;
        }
        let mut buffer = self.buffer(source, out.len()).ok()?;
        buffer[..out.len()].copy_from_slice(out);
        Some(Decoded::new(buffer, out.len()))
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

fn copy_out(decoded: &Decoded, piece: &mut Piece<'_>) {
    let range = piece.from..piece.to();
    piece.out.copy_from_slice(&decoded.bytes()[range]);
}

fn codec(algorithm: Algorithm) -> Codec {
    match algorithm {
        Algorithm::Lz4 => Codec::Lz4,
        Algorithm::Lzma => Codec::Lzma,
        Algorithm::Deflate => Codec::Deflate,
        Algorithm::Zstd => Codec::Zstd,
    }
}
