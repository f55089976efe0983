//! Fetches stored bytes from devices and from the metabox.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use erofs_format::{Coding, Location, interlaced_offset};
use figures::add;

use crate::read::FileReader;
use crate::read::decode_context::PageBuffer;
use crate::read::segment::Segment;
use crate::{Error, FileFault, Result};

/// Origin and number of the stored bytes in the input buffer of a decode context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    location: Location,
    length: u64,
}

impl Stored {
    /// Where the stored bytes of `segment` are in the input buffer, if all of them are there.
    fn range(&self, segment: &Segment<'_>) -> Option<Range<usize>> {
        let (at, own) = (segment.pcluster.location, self.location);
        let is_same = (at.device, at.metabox) == (own.device, own.metabox);
        let start = at.physical.checked_sub(own.physical)?;
        let end = start + u64::from(segment.pcluster.length);
        (is_same && end <= self.length).then_some(start as usize..end as usize)
    }
}

impl FileReader<'_> {
    /// Makes the stored bytes of the first segment of `run` available in `input`, and returns their
    /// range. Fetches those of the whole run in one read.
    pub(crate) fn fetch(
        &self,
        input: &mut PageBuffer,
        stored: &mut Option<Stored>,
        run: &[Segment<'_>],
    ) -> Result<Range<usize>> {
        if let Some(range) = stored.as_ref().and_then(|stored| stored.range(&run[0])) {
            return Ok(range);
        }
        *stored = None;
        let location = run[0].pcluster.location;
        let length: u64 = run.iter().map(|s| u64::from(s.pcluster.length)).sum();
        self.within(self.request.charge(length))?;
        let start = self.path.spans.begin();
        self.fetch_into(location, input.first(length as usize))?;
        let spans = &self.path.spans;
        spans.end(start, "fetch", location.physical, length);
        add(&self.path.counters.own().fetched_bytes, length);
        *stored = Some(Stored { location, length });
        Ok(0..run[0].pcluster.length as usize)
    }

    /// Reads a segment of an uncompressed pcluster.
    pub(crate) fn fetch_plain(&self, segment: &mut Segment<'_>) -> Result<()> {
        let (from, pcluster) = (segment.from as u64, segment.pcluster);
        let stored = u64::from(pcluster.length);
        let start = match pcluster.coding {
            Coding::Interlaced => {
                interlaced_offset(segment.logical, from, self.path.block_size, stored)
            }
            _ => from,
        };
        // The wanted bytes wrap at most once, from the end of the stored bytes to their start.
        let until_wrap = stored.saturating_sub(start);
        let split = segment.out.len().min(until_wrap as usize);
        let (first, second) = segment.out.split_at_mut(split);
        let at = |offset| Location {
            physical: pcluster.location.physical + offset,
            ..pcluster.location
        };
        self.fetch_into(at(start), first)?;
        if second.is_empty() {
            Ok(())
        } else {
            self.fetch_into(at(0), second)
        }
    }

    /// Fills `buf` from a device or from the metabox.
    pub(crate) fn fetch_into(&self, location: Location, buf: &mut [u8]) -> Result<()> {
        if location.metabox {
            return self.read_meta(true, buf, location.physical);
        }
        let length = buf.len() as u64;
        let device = self.path.devices.get(usize::from(location.device));
        device
            .ok_or_else(|| io::Error::other("no such device"))
            .and_then(|device| device.fetch(self.request, buf, location.physical))
            .map_err(|error| self.fetch_error(location, length, error))
    }

    /// An error for stored bytes that could not be read.
    pub(crate) fn fetch_error(&self, location: Location, length: u64, error: io::Error) -> Error {
        self.error(FileFault::Fetch {
            location,
            length,
            source: Arc::new(error),
        })
    }
}
