//! The path of a read: map the range, fetch uncompressed bytes, pass the compressed segments to the
//! kickoff.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

use erofs_format::{Coding, Extent, ExtentKind, Holder, Location, ReadAt};
use smallvec::SmallVec;

use crate::error::errno;
use crate::read::FileReader;
use crate::read::segment::Segment;
use crate::read::share::{self, Help, reader_decompresses};
use crate::{FileFault, Result};

/// Number of segments held without an allocation: a page touches at most two pclusters.
const INLINE_SEGMENTS: usize = 2;

/// An extent, and the bytes of the file that are wanted from it.
type Part = (Range<u64>, Extent);

/// Ranges of stored bytes, by the number of their device.
pub(crate) type Stored = BTreeMap<usize, Vec<Range<u64>>>;

impl FileReader<'_> {
    /// Reads from byte `offset` on; all of `out` must be inside the file. Bytes from a network are
    /// fetched in one round trip.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8], help: Option<Help<'_>>) -> Result<()> {
        let range = offset..offset + out.len() as u64;
        self.with_image(|image| {
            let parts = image.extents(self.inode, range);
            let parts = parts.map(|part| part.map_err(|error| self.error(error)));
            if !self.path.is_remote {
                return self.place_parts(parts, out, help);
            }
            let parts: Vec<Part> = parts.collect::<Result<_, _>>()?;
            self.need(&parts)?;
            self.place_parts(parts.into_iter().map(Ok), out, help)
        })
    }

    /// Where the stored bytes of a range are, by device.
    pub(crate) fn stored(&self, range: Range<u64>) -> Result<Stored> {
        let parts: erofs_format::Result<Vec<Part>> =
            self.with_image(|image| image.extents(self.inode, range).collect());
        Ok(stored(&parts.map_err(|error| self.error(error))?))
    }

    /// Waits until the stored bytes are cached, or records which are missing. The bytes of
    /// structures and of other inodes are fetched when those are read.
    fn need(&self, parts: &[Part]) -> Result<()> {
        for (number, ranges) in stored(parts) {
            // A read from a device that does not exist will report the error.
            let Some(device) = self.path.devices.get(number) else {
                continue;
            };
            device.need(self.request, &ranges).map_err(|error| {
                let location = Location::on_device(number as u16, ranges[0].start);
                let length = ranges.iter().map(|range| range.end - range.start).sum();
                self.fetch_error(location, length, error)
            })?;
        }
        Ok(())
    }

    fn place_parts(
        &self,
        parts: impl Iterator<Item = Result<Part>>,
        mut rest: &mut [u8],
        help: Option<Help<'_>>,
    ) -> Result<()> {
        let wanted = rest.len();
        let mut segments: SmallVec<[Segment<'_>; INLINE_SEGMENTS]> = SmallVec::new();
        for part in parts {
            let (range, extent) = part?;
            let within = range.start - extent.logical;
            let (now, later) = rest.split_at_mut((range.end - range.start) as usize);
            rest = later;
            match extent.kind {
                ExtentKind::Hole => now.fill(0),
                ExtentKind::Raw { device, physical } => {
                    self.fetch_into(Location::on_device(device, physical + within), now)?;
                }
                ExtentKind::Meta { metabox, physical } => {
                    self.read_meta(metabox, now, physical + within)?;
                }
                ExtentKind::Fragment { offset } => {
                    self.read_fragment(offset + within, now, help)?;
                }
                ExtentKind::Compressed(pcluster) => segments.push(Segment {
                    logical: extent.logical,
                    from: within as usize,
                    out: now,
                    pcluster,
                    filled: false,
                    joined: None,
                }),
            }
        }
        self.decompress(&mut segments, wanted, help)
    }

    /// Reads metadata, such as an inline tail.
    pub(crate) fn read_meta(&self, metabox: bool, buf: &mut [u8], offset: u64) -> Result<()> {
        let read = self.with_image(|image| image.read_meta(metabox, buf, offset));
        read.map_err(|error| self.error(error))
    }

    /// Reads from the packed inode, whose size and extents the map has already checked.
    fn read_fragment(&self, offset: u64, out: &mut [u8], help: Option<Help<'_>>) -> Result<()> {
        let bytes = self.path.bytes(self.request, self.through);
        let Some(mut packed) = bytes.special(Holder::Packed) else {
            let (what, errno) = ("a fragment without packed inode", errno::EUCLEAN);
            return Err(self.error(FileFault::Kind { what, errno }));
        };
        packed.file.sink = self.sink;
        packed.read(offset, out, help)
    }

    fn decompress(
        &self,
        segments: &mut [Segment<'_>],
        bytes: usize,
        help: Option<Help<'_>>,
    ) -> Result<()> {
        let to_decode = segments
            .iter()
            .any(|p| matches!(p.pcluster.coding, Coding::Compressed(_)));
        let here = |help: Help<'_>| reader_decompresses(help.policy, self.request.context, bytes);
        match help {
            // With nothing to decode, no worker is involved.
            Some(help) if to_decode && !here(help) => {
                share::decompress_on_worker(*self, segments, help.workers)
            }
            help => share::decompress_here(*self, segments, help),
        }
    }
}

fn stored(parts: &[Part]) -> Stored {
    let mut stored = Stored::new();
    for (range, extent) in parts {
        let (device, start, length) = match extent.kind {
            ExtentKind::Raw { device, physical } => {
                let start = physical + (range.start - extent.logical);
                (device, start, range.end - range.start)
            }
            ExtentKind::Compressed(pcluster) if !pcluster.location.metabox => {
                let location = pcluster.location;
                (location.device, location.physical, pcluster.length.into())
            }
            _ => continue,
        };
        let ranges = stored.entry(device.into()).or_default();
        ranges.push(start..start.saturating_add(length));
    }
    stored
}

impl ReadAt for FileReader<'_> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.request.step().map_err(io::Error::other)?;
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.inode.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read(offset, buf, None).map_err(io::Error::other)
    }

    fn size(&self) -> u64 {
        self.inode.size
    }
}
