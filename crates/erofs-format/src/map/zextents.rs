//! Encoded extents: one record per extent instead of an index of lclusters.
//!
//! Records have 4, 8, 16 or 32 bytes and contain as many of these fields as fit: stored length and
//! format, physical address (low, high), logical start (low, high). Records of 4 and 8 bytes omit
//! the logical start: all extents but the last have the same length, which is the lcluster size.
//! Records of 4 bytes omit the address as well: extents are consecutive on the device, starting at
//! an 8-byte address that is stored in front of the records. See `z_erofs_extent` in
//! fs/erofs/erofs_fs.h and `z_erofs_map_blocks_ext` in fs/erofs/zmap.c.

use crate::meta::{Meta, Window, word};
use crate::zmap::Extents;
use crate::{Extent, ExtentKind, Inode, Reader, Result};

use super::pcluster::{Candidate, algorithm, compressed, fragment, plain};

/// The length bits of a stored length (`Z_EROFS_EXTENT_PLEN_MASK`).
const LENGTH: u32 = (1 << 21) - 1;
/// `Z_EROFS_EXTENT_PLEN_PARTIAL`.
const PARTIAL: u32 = 1 << 27;
/// The bits from this one on: 0 if the data is uncompressed, otherwise the algorithm's number plus
/// 1.
const FORMAT_SHIFT: u32 = 28;

/// Maximum number of 4-byte records that a lookup reads, since an address is the sum of all
/// preceding lengths. This is 64 MiB of records, enough for 64 GiB in extents of 4 KiB and 1 TiB in
/// extents of 64 KiB.
const MAX_CONTIGUOUS: u64 = 1 << 24;

/// A record in a form common to all record sizes; the result of a search.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    /// Stored length with its flags.
    stored: u32,
    physical: u64,
    logical: u64,
    /// Start of the next extent; for the last one, the file's size.
    end: u64,
    last: bool,
}

impl Extents {
    fn find(&self, inode: &Inode, meta: Meta<'_>, offset: u64) -> Result<Record> {
        match self.record {
            4 => self.contiguous(inode, meta, offset),
            8 => self.constant(inode, meta, offset),
            _ => self.search(inode, meta, offset),
        }
    }

    /// Extent `number` of an inode whose extents all have the same length; its address is not known
    /// yet.
    fn numbered(&self, inode: &Inode, number: u64, stored: u32) -> Record {
        let logical = number << self.lcluster_bits;
        // Cannot overflow: the result is below 2^63 + 2^31.
        let end = (number + 1) << self.lcluster_bits;
        let (last, end) = (end >= inode.size, end.min(inode.size));
        Record {
            stored,
            physical: 0,
            logical,
            end,
            last,
        }
    }

    /// Finds an extent in records of 8 bytes.
    fn constant(&self, inode: &Inode, meta: Meta<'_>, offset: u64) -> Result<Record> {
        let number = offset >> self.lcluster_bits;
        let mut bytes = [0; 8];
        meta.read(&mut bytes, self.start + number * 8)?;
        let record = self.numbered(inode, number, word(&bytes, 0));
        Ok(Record {
            physical: word(&bytes, 4).into(),
            ..record
        })
    }

    /// Finds an extent in records of 4 bytes, which follow the address of the first extent.
    fn contiguous(&self, inode: &Inode, meta: Meta<'_>, offset: u64) -> Result<Record> {
        let records = self.start + 8;
        let number = offset >> self.lcluster_bits;
        if number >= MAX_CONTIGUOUS {
            return unsupported!(
                "extent {number} of nid {:#x}; the limit is {MAX_CONTIGUOUS} records of 4 bytes",
                inode.own_nid()
            );
        }
        // Start adding up lengths only if all the records exist.
        meta.check(records, (number + 1).saturating_mul(4))?;
        let mut window = Window::new(meta);
        let (mut at, mut physical) = self.begin(&mut window, number)?;
        loop {
            let stored = word(window.get(records + at * 4, 4)?, 0);
            if at == number {
                self.found(number, physical);
                return Ok(Record {
                    physical,
                    ..self.numbered(inode, number, stored)
                });
            }
            let Some(next) = physical.checked_add((stored & LENGTH).into()) else {
                return corrupted!("extent {at} of nid {:#x} has no address", inode.own_nid());
            };
            physical = next;
            at += 1;
            self.remember(at, physical);
        }
    }

    /// Where the sum of lengths starts: the nearest checkpoint, or the first extent.
    fn begin(&self, window: &mut Window<'_>, number: u64) -> Result<(u64, u64)> {
        if let Some(checkpoint) = self.nearest_checkpoint(number) {
            return Ok(checkpoint);
        }
        let bytes = window.get(self.start, 8)?;
        let physical = u64::from(word(bytes, 0)) | u64::from(word(bytes, 4)) << 32;
        self.remember(0, physical);
        Ok((0, physical))
    }

    /// Searches records of 16 or 32 bytes, which ascend by logical start: returns the last one that
    /// begins at or before `offset`, or a hole if even the first begins after it.
    fn search(&self, inode: &Inode, meta: Meta<'_>, offset: u64) -> Result<Record> {
        let size = self.count.checked_mul(self.record);
        meta.check(self.start, size.unwrap_or(u64::MAX))?;
        let mut window = Window::new(meta);
        let (mut low, mut high) = (0, self.count);
        let mut found: Option<Record> = None;
        let mut end = inode.size;
        while low < high {
            let middle = low + (high - low) / 2;
            let record =
                self.parse(window.get(self.start + middle * self.record, self.record as usize)?);
            let floor = found.as_ref().map_or(0, |record| record.logical);
            if record.logical < floor || (record.logical > end && record.logical > offset) {
                return corrupted!(
                    "extent {middle} of nid {:#x} begins at {}, out of order",
                    inode.own_nid(),
                    record.logical
                );
            }
            if record.logical > offset {
                (high, end) = (middle, record.logical);
            } else {
                (low, found) = (middle + 1, Some(record));
            }
        }
        Ok(match found {
            Some(record) => Record {
                end,
                last: low >= self.count,
                ..record
            },
            // A hole up to the first extent.
            None => Record {
                end,
                ..Record::default()
            },
        })
    }

    fn parse(&self, bytes: &[u8]) -> Record {
        let high = match self.record {
            16 => 0,
            _ => u64::from(word(bytes, 16)) << 32,
        };
        Record {
            stored: word(bytes, 0),
            physical: u64::from(word(bytes, 4)) | u64::from(word(bytes, 8)) << 32,
            logical: u64::from(word(bytes, 12)) | high,
            ..Record::default()
        }
    }
}

pub(super) fn map(
    image: Reader<'_>,
    inode: &Inode,
    extents: &Extents,
    offset: u64,
) -> Result<Extent> {
    let record = extents.find(inode, image.meta_of(inode)?, offset)?;
    let (stored, physical, logical) = (record.stored, record.physical, record.logical);
    if record.last && extents.fragment {
        // The address has an upper half if the record has room for it.
        let high = match extents.record {
            4 => 0,
            _ => physical << 32,
        };
        return fragment(image, inode, logical, u64::from(stored) | high);
    }
    let length = u64::from(stored & LENGTH);
    if length == 0 {
        let length = record.end - logical;
        return Ok(Extent::new(logical, length, ExtentKind::Hole));
    }
    let candidate = Candidate {
        logical,
        decoded_end: record.end,
        physical,
        length,
        coding: match (stored >> FORMAT_SHIFT) as u8 {
            0 => plain(image, extents.interlaced, physical, length),
            format => algorithm(inode, format - 1)?,
        },
        partial: stored & PARTIAL != 0,
        inline: false,
    };
    compressed(image, inode, &candidate)
}
