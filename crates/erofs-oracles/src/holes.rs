//! Turns pclusters of good images into holes in every way that the format has: by a bit in a head
//! of a full index, by a block count of 0 in a full or compact index, or by an extent record of 0
//! bytes. No mkfs uses the first two ways.
//!
//! The index is read and written here without the reader's code, since that is under test.

use std::ops::Range;

/// Offset of the superblock.
const SUPERBLOCK: usize = 1024;
/// Bits of `h_advise`.
const EXTENTS: u16 = 1;
const COMPACTED_2B: u16 = 1;
const BIG_PCLUSTERS: u16 = 6;
const INLINE: u16 = 8;
const FRAGMENT: u16 = 32;
/// Type of an lcluster that is not a head.
const NON_HEAD: u16 = 2;
/// `Z_EROFS_LI_HOLE` of a head.
const HOLE: u16 = 1 << 14;
/// `Z_EROFS_LI_D0_CBLKCNT` of the next entry.
const COUNT: u16 = 1 << 11;

/// The way in which an index marks a pcluster as a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum How {
    /// By a bit in the head.
    Bit,
    /// By a block count of 0 in a full index.
    Count,
    /// By a block count of 0 in a compact index.
    CompactCount,
    /// By an extent record of 0 bytes.
    Record,
}

/// A pcluster that can be turned into a hole.
#[derive(Clone, Debug)]
pub struct Hole {
    /// The part of the file that becomes zeros.
    pub range: Range<u64>,
    /// The way in which it becomes a hole.
    pub how: How,
    /// The bytes to write, and their offsets.
    writes: Vec<(usize, Vec<u8>)>,
}

impl Hole {
    /// Turns the pcluster into a hole. The superblock is left without a checksum.
    pub fn punch(&self, image: &mut [u8]) {
        image[SUPERBLOCK + 8] &= !1;
        for (at, bytes) in &self.writes {
            image[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
    }
}

/// All pclusters that can be turned into holes in a compressed inode outside the metabox, in the
/// order of the file; empty for any other inode.
pub fn holes(image: &[u8], nid: u64) -> Vec<Hole> {
    match Map::of(image, nid) {
        Some(map) if map.layout == 1 && map.advise & EXTENTS != 0 => map.records(),
        Some(map) if map.layout == 1 => map.full(),
        Some(map) if map.layout == 3 => map.compact(),
        _ => Vec::new(),
    }
}

fn u16_at(image: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([image[at], image[at + 1]])
}

fn u32_at(image: &[u8], at: usize) -> u32 {
    u32::from(u16_at(image, at)) | u32::from(u16_at(image, at + 2)) << 16
}

/// The map of an inode.
struct Map<'a> {
    image: &'a [u8],
    layout: u16,
    size: u64,
    /// Offset of the map header.
    header: usize,
    advise: u16,
    lcluster_bits: u32,
}

/// An entry of an index.
#[derive(Clone, Copy)]
struct Entry {
    kind: u16,
    /// For a head, its offset within its lcluster. For other entries, the distance back to the head
    /// or, with the flag [`COUNT`], the number of blocks.
    value: u16,
}

/// The place of an entry of a compact index.
struct Place {
    pack: usize,
    bytes: usize,
    slot: usize,
}

impl<'a> Map<'a> {
    fn of(image: &'a [u8], nid: u64) -> Option<Self> {
        let block_bits = u32::from(image[SUPERBLOCK + 12]);
        let meta = (u32_at(image, SUPERBLOCK + 40) as usize) << block_bits;
        let inode = meta.checked_add(usize::try_from(nid).ok()?.checked_mul(32)?)?;
        image.get(inode..inode + 64)?;
        let format = u16_at(image, inode);
        let extended = format & 1 != 0;
        let size = match extended {
            true => {
                u64::from(u32_at(image, inode + 8)) | u64::from(u32_at(image, inode + 12)) << 32
            }
            false => u32_at(image, inode + 8).into(),
        };
        let xattrs = match usize::from(u16_at(image, inode + 2)) {
            0 => 0,
            count => 8 + 4 * count,
        };
        let header = (inode + if extended { 64 } else { 32 } + xattrs).next_multiple_of(8);
        // A file that is entirely in the packed inode has no index.
        let cluster_bits = *image.get(header + 7)?;
        let map = Map {
            image,
            layout: format >> 1 & 7,
            size,
            header,
            advise: u16_at(image, header + 4),
            lcluster_bits: block_bits + u32::from(cluster_bits & 15),
        };
        (cluster_bits & 0x80 == 0 && size > 0 && map.is_inside()).then_some(map)
    }

    /// Whether all entries of an index lie inside the image.
    fn is_inside(&self) -> bool {
        let entries = self.size.div_ceil(1 << self.lcluster_bits);
        // Each entry takes at least 2 bytes, which bounds the numbers below.
        if entries > self.image.len() as u64 {
            return false;
        }
        let end = match self.layout {
            1 if self.advise & EXTENTS != 0 => self.header + 8,
            1 => self.header + 16 + 8 * self.lclusters(),
            _ => {
                let last = self.place(self.lclusters() - 1);
                last.pack + last.bytes
            }
        };
        end <= self.image.len()
    }

    fn lclusters(&self) -> usize {
        self.size.div_ceil(1 << self.lcluster_bits) as usize
    }

    /// Whether the last extent is stored inline or in the packed inode, not in a pcluster of its
    /// own.
    fn has_tail(&self) -> bool {
        let inline = self.advise & INLINE != 0 && u16_at(self.image, self.header + 2) != 0;
        inline || self.advise & FRAGMENT != 0
    }

    /// The pclusters of an index: for each, the number of its head, and the range of the file that
    /// it covers.
    fn pclusters(&self, entries: &[Entry]) -> Vec<(usize, Range<u64>)> {
        let is_head = |&(_, entry): &(usize, &Entry)| entry.kind != NON_HEAD;
        let begin = |(number, entry): (usize, &Entry)| {
            let at = ((number as u64) << self.lcluster_bits) + u64::from(entry.value);
            (number, at)
        };
        let heads: Vec<_> = entries
            .iter()
            .enumerate()
            .filter(is_head)
            .map(begin)
            .collect();
        let ends = heads.iter().skip(1).map(|head| head.1).chain([self.size]);
        let mut all: Vec<_> = heads
            .iter()
            .zip(ends)
            .map(|(head, end)| (head.0, head.1..end))
            .collect();
        // mkfs ends some files with a head after their last byte.
        for (_, range) in &mut all {
            range.end = range.end.min(self.size);
        }
        all.retain(|(_, range)| !range.is_empty());
        if self.has_tail() {
            all.pop();
        }
        all
    }

    fn full(&self) -> Vec<Hole> {
        let at = |number: usize| self.header + 16 + 8 * number;
        let entries: Vec<Entry> = (0..self.lclusters())
            .map(|number| {
                let kind = u16_at(self.image, at(number)) & 3;
                let field = if kind == NON_HEAD { 4 } else { 2 };
                let value = u16_at(self.image, at(number) + field);
                Entry { kind, value }
            })
            .collect();
        let mut found = Vec::new();
        for (head, range) in self.pclusters(&entries) {
            let advise = u16_at(self.image, at(head)) | HOLE;
            // The address of a hole has no meaning.
            let writes = vec![
                (at(head), advise.to_le_bytes().to_vec()),
                (at(head) + 4, vec![0xff; 4]),
            ];
            found.push(Hole {
                range: range.clone(),
                how: How::Bit,
                writes,
            });
            let counted = entries.get(head + 1);
            if counted.is_some_and(|next| next.kind == NON_HEAD && next.value & COUNT != 0) {
                let writes = vec![
                    (at(head) + 4, vec![0xff; 4]),
                    (at(head + 1) + 4, COUNT.to_le_bytes().to_vec()),
                ];
                found.push(Hole {
                    range,
                    how: How::Count,
                    writes,
                });
            }
        }
        found
    }

    fn place(&self, number: usize) -> Place {
        let base = self.header + 8;
        let total = self.lclusters();
        let before = ((32 - base % 32) / 4) & 7;
        let large = match self.advise & COMPACTED_2B != 0 && before < total {
            true => (total - before) / 16 * 16,
            false => 0,
        };
        let (at, bytes) = match number {
            _ if number < before => (base + 4 * number, 8),
            _ if number < before + large => (base + 4 * before + 2 * (number - before), 32),
            _ => (base + 2 * large + 4 * (number - large), 8),
        };
        let pack = at / bytes * bytes;
        let slot = (at - pack) / if bytes == 8 { 4 } else { 2 };
        Place { pack, bytes, slot }
    }

    /// First bit and number of bits of an entry's value in its pack.
    fn bits(&self, place: &Place) -> (usize, u32) {
        let entry = if place.bytes == 8 { 16 } else { 14 };
        (place.slot * entry, self.lcluster_bits.max(12))
    }

    fn compact_entry(&self, number: usize) -> Entry {
        let place = self.place(number);
        let (bit, bits) = self.bits(&place);
        let word = u32_at(self.image, place.pack + bit / 8) >> (bit % 8);
        Entry {
            kind: (word >> bits & 3) as u16,
            value: (word & ((1 << bits) - 1)) as u16,
        }
    }

    /// Holes by block counts of 0. The block of a head is found by adding up the counts before the
    /// head in its pack, so only the last head of a pack can lose its blocks without moving those
    /// of other heads. If the count of a head is stored in the next pack, the count is added to the
    /// block that this pack begins with, which therefore stays right.
    fn compact(&self) -> Vec<Hole> {
        let entries: Vec<Entry> = (0..self.lclusters())
            .map(|n| self.compact_entry(n))
            .collect();
        let mut found = Vec::new();
        if self.advise & BIG_PCLUSTERS == 0 {
            return found;
        }
        for (head, range) in self.pclusters(&entries) {
            let pack = self.place(head).pack;
            let in_pack = |number: &usize| self.place(*number).pack == pack;
            let later = (head + 1..entries.len()).take_while(in_pack);
            let is_last = later
                .into_iter()
                .all(|number| entries[number].kind == NON_HEAD);
            let Some(next) = entries.get(head + 1).filter(|_| is_last) else {
                continue;
            };
            if next.kind != NON_HEAD || next.value & COUNT == 0 {
                continue;
            }
            let place = self.place(head + 1);
            let (bit, bits) = self.bits(&place);
            let at = place.pack + bit / 8;
            let mask = ((1u32 << bits) - 1) << (bit % 8);
            let word = u32_at(self.image, at) & !mask | u32::from(COUNT) << (bit % 8);
            let mut bytes = self.image[place.pack..place.pack + place.bytes].to_vec();
            bytes[bit / 8..bit / 8 + 4].copy_from_slice(&word.to_le_bytes());
            if place.pack != pack {
                let end = place.bytes - 4;
                let block = u32_at(&bytes, end) + u32::from(next.value & !COUNT);
                bytes[end..].copy_from_slice(&block.to_le_bytes());
            }
            let writes = vec![(place.pack, bytes)];
            found.push(Hole {
                range,
                how: How::CompactCount,
                writes,
            });
        }
        found
    }

    /// Holes by extent records of 16 or 32 bytes, which store the extent's place in the file.
    fn records(&self) -> Vec<Hole> {
        let record = 4usize << (self.advise >> 1 & 3);
        let start = (self.header + 8).next_multiple_of(record);
        let count = u32_at(self.image, self.header) as usize;
        if record < 16 || count > self.image.len() || start + count * record > self.image.len() {
            return Vec::new();
        }
        let logical = |number: usize| {
            let at = start + number * record;
            let high = if record == 32 {
                u32_at(self.image, at + 16)
            } else {
                0
            };
            u64::from(u32_at(self.image, at + 12)) | u64::from(high) << 32
        };
        let kept = count.saturating_sub(usize::from(self.advise & FRAGMENT != 0));
        let hole = |number: usize| {
            let end = if number + 1 < count {
                logical(number + 1)
            } else {
                self.size
            };
            Hole {
                range: logical(number)..end,
                how: How::Record,
                writes: vec![(start + number * record, vec![0; 4])],
            }
        };
        (0..kept).map(hole).collect()
    }
}
