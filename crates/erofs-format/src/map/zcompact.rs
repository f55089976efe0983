//! Packed entries: packs of 2 entries in 8 bytes, or of 16 entries in 32 bytes.
//!
//! A pack consists of its entries, stored bit by bit from the lowest bit, and of 4 bytes with the
//! block number from which the blocks of its heads are counted. Without big pclusters, that is the
//! number of the block before that of the first head. In an entry, the type is in the bits above
//! the value. The value is `clusterofs` for heads, and the backward distance for non-heads, except
//! that a non-head at the end of its pack has the forward distance. See
//! `z_erofs_load_compact_lcluster` in fs/erofs/zmap.c.

use crate::meta::{Window, word};
use crate::zmap::{BIG_PCLUSTER_1, BLOCK_COUNT, COMPACTED_2B, Index, Kind, Lcluster};
use crate::{Inode, Result};

/// Binary logarithm of the largest lcluster size for packs with 16 bits per entry: 2 bits of type
/// and up to 14 of value.
const MAX_BITS: u8 = 14;
/// Binary logarithm of the largest lcluster size for packs with 14 bits per entry.
const MAX_BITS_2B: u8 = 12;
/// Values have room for a distance with its flag even if lclusters are small.
const MIN_VALUE_BITS: u8 = 12;

/// The pack of an entry.
struct Pack {
    /// Where the pack starts.
    start: u64,
    /// Number of entries in the pack: 2 or 16.
    entries: u32,
    /// Index of the entry in the pack.
    slot: u32,
}

impl Pack {
    fn bytes(&self) -> usize {
        if self.entries == 2 { 8 } else { 32 }
    }
}

/// The packs of 32 bytes are aligned; 8-byte packs fill the space before and after them.
fn locate(index: &Index, total: u64, lcn: u64) -> Pack {
    let before = ((32 - index.start % 32) / 4) & 7;
    let large = match index.advise & COMPACTED_2B != 0 && before < total {
        true => (total - before) / 16 * 16,
        false => 0,
    };
    let behind = before + large;
    let (position, entries) = if lcn < before {
        (index.start + lcn * 4, 2)
    } else if lcn < behind {
        (index.start + before * 4 + (lcn - before) * 2, 16)
    } else {
        (index.start + before * 4 + large * 2 + (lcn - behind) * 4, 2)
    };
    let (bytes, amortized) = if entries == 2 { (8, 4) } else { (32, 2) };
    let start = position / bytes * bytes;
    Pack {
        start,
        entries,
        slot: ((position - start) / amortized) as u32,
    }
}

pub(super) fn load(
    inode: &Inode,
    index: &Index,
    window: &mut Window<'_>,
    lcn: u64,
) -> Result<Lcluster> {
    let bits = index.lcluster_bits;
    let total = ((inode.size - 1) >> bits) + 1;
    let pack = locate(index, total, lcn);
    if bits > MAX_BITS || (pack.entries == 16 && bits > MAX_BITS_2B) {
        return unsupported!(
            "compact index with lclusters of 2^{bits} bytes in nid {:#x}",
            inode.own_nid()
        );
    }
    let decoder = Decoder {
        bytes: window.get(pack.start, pack.bytes())?,
        entries: pack.entries,
        value_bits: bits.max(MIN_VALUE_BITS).into(),
        big: index.advise & BIG_PCLUSTER_1 != 0,
    };
    let index_end = pack.start + pack.bytes() as u64;
    match decoder.lcluster(pack.slot, index_end) {
        Ok(lcluster) => Ok(lcluster),
        Err(wrong) => corrupted!("{wrong} at lcluster {lcn} of nid {:#x}", inode.own_nid()),
    }
}

/// Decodes the entries of one pack.
struct Decoder<'a> {
    bytes: &'a [u8],
    entries: u32,
    value_bits: u32,
    /// Whether pclusters may have more than one block.
    big: bool,
}

impl Decoder<'_> {
    /// Type and value of an entry.
    fn entry(&self, slot: u32) -> (Kind, u32) {
        let entry_bits = (self.bytes.len() as u32 - 4) * 8 / self.entries;
        let at = slot * entry_bits;
        let byte = (at / 8) as usize;
        // The block address after the entries guarantees that these four bytes exist.
        let bits = word(self.bytes, byte) >> (at % 8);
        let value = bits & ((1 << self.value_bits) - 1);
        (Kind::from_bits(bits >> self.value_bits), value)
    }

    fn lcluster(&self, slot: u32, index_end: u64) -> Result<Lcluster, &'static str> {
        let (kind, value) = self.entry(slot);
        let mut lcluster = Lcluster {
            kind,
            clusterofs: value.into(),
            index_end,
            ..Lcluster::default()
        };
        if kind != Kind::NonHead {
            lcluster.block = self.block(slot)?;
            return Ok(lcluster);
        }
        lcluster.forward = self.forward(slot);
        if value & BLOCK_COUNT != 0 {
            if !self.big {
                return Err("block count without big pclusters");
            }
            lcluster.stored_blocks = Some((value & !BLOCK_COUNT).into());
            lcluster.back = 1;
        } else if slot + 1 < self.entries {
            lcluster.back = value.into();
        } else {
            lcluster.back = self.back_of_last(slot);
        }
        Ok(lcluster)
    }

    /// The last entry of a pack has a forward distance; its backward distance follows from the
    /// entry before it.
    fn back_of_last(&self, slot: u32) -> u64 {
        match self.entry(slot - 1) {
            (Kind::NonHead, value) if value & BLOCK_COUNT != 0 => 2,
            (Kind::NonHead, value) => u64::from(value) + 1,
            _ => 1,
        }
    }

    /// Distance from `slot` to the next head. If no head follows in the pack, the last entry's
    /// distance is added.
    fn forward(&self, slot: u32) -> u64 {
        let mut distance = 0;
        for slot in slot..self.entries {
            let (kind, value) = self.entry(slot);
            if kind != Kind::NonHead {
                return distance;
            }
            distance += 1;
            if slot + 1 == self.entries && value & BLOCK_COUNT == 0 {
                distance += u64::from(value).saturating_sub(1);
            }
        }
        distance
    }

    /// Block of the head at `slot`: the pack's address plus the blocks of preceding pclusters.
    fn block(&self, slot: u32) -> Result<u64, &'static str> {
        let base = u64::from(word(self.bytes, self.bytes.len() - 4));
        if self.big {
            return Ok(base + self.big_blocks(slot)?);
        }
        let heads = (0..slot).filter(|&slot| self.entry(slot).0 != Kind::NonHead);
        Ok(base + 1 + heads.count() as u64)
    }

    /// The blocks that this pack counts before the head at `slot`. A head stands for one block
    /// unless the next entry has a count. A count whose head is in the previous pack is included.
    fn big_blocks(&self, slot: u32) -> Result<u64, &'static str> {
        let mut blocks = 0;
        let mut slot = slot;
        while slot > 0 {
            slot -= 1;
            match self.entry(slot) {
                (Kind::NonHead, value) if value & BLOCK_COUNT != 0 => {
                    blocks += u64::from(value & !BLOCK_COUNT);
                    slot = slot.saturating_sub(1);
                }
                // The entry directly after a head must have the count.
                (Kind::NonHead, 0 | 1) => {
                    return Err("non-head without a block count after a head");
                }
                // Continues with the entry after the head, if it is in this pack.
                (Kind::NonHead, value) => slot = (slot + 2).saturating_sub(value),
                _ => blocks += 1,
            }
        }
        Ok(blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zmap::Tail;

    fn index(start: u64, advise: u16) -> Index {
        Index {
            full: false,
            start,
            lcluster_bits: 12,
            advise,
            algorithms: [0, 0],
            tail: Tail::None,
        }
    }

    /// A pack of 32 bytes with these types and values.
    fn pack(entries: [(u32, u32); 16], block: u32) -> Vec<u8> {
        let mut bytes = vec![0u8; 32];
        for (slot, (kind, value)) in entries.into_iter().enumerate() {
            let word = u64::from(kind << 12 | value) << (slot * 14 % 8);
            for (byte, bits) in bytes[slot * 14 / 8..]
                .iter_mut()
                .zip(word.to_le_bytes())
                .take(3)
            {
                *byte |= bits;
            }
        }
        bytes[28..].copy_from_slice(&block.to_le_bytes());
        bytes
    }

    fn decoder(bytes: &[u8], big: bool) -> Decoder<'_> {
        Decoder {
            bytes,
            entries: 16,
            value_bits: 12,
            big,
        }
    }

    /// The pack of an entry: its start, its number of entries, and the slot of the entry.
    fn place(index: &Index, total: u64, lcn: u64) -> (u64, u32, u32) {
        let Pack {
            start,
            entries,
            slot,
        } = locate(index, total, lcn);
        (start, entries, slot)
    }

    #[test]
    fn large_packs_are_aligned_and_small_ones_fill_up() {
        // The index starts 8 bytes past a multiple of 32: six entries in small packs precede the
        // next multiple.
        let index = index(1000, COMPACTED_2B);
        let places = [0, 5, 6, 37, 38, 40].map(|lcn| place(&index, 6 + 32 + 3, lcn));
        let small = [(1000, 2, 0), (1016, 2, 1)];
        let (large, behind) = (
            [(1024, 16, 0), (1056, 16, 15)],
            [(1088, 2, 0), (1096, 2, 0)],
        );
        assert_eq!(places[..], [small, large, behind].concat());
    }

    #[test]
    fn without_large_packs_all_are_small() {
        assert_eq!(place(&index(1000, 0), 100, 99), (1392, 2, 1));
    }

    #[test]
    fn heads_find_their_block_by_counting() {
        let mut entries = [(1, 7); 16];
        entries[1] = (2, 1);
        entries[2] = (2, 2);
        entries[15] = (2, 3);
        let bytes = pack(entries, 100);
        let load = |slot| decoder(&bytes, false).lcluster(slot, 0).unwrap();
        assert_eq!(
            [load(0).block, load(3).block, load(4).block],
            [101, 102, 103]
        );
        assert_eq!((load(1).back, load(1).forward), (1, 2));
        assert_eq!((load(2).back, load(2).forward), (2, 1));
        // The last entry has a forward distance; it directly follows a head.
        assert_eq!((load(15).back, load(15).forward), (1, 3));
    }

    #[test]
    fn counts_of_big_pclusters_move_the_heads_behind_them() {
        let mut entries = [(1, 0); 16];
        // A count whose head is in the previous pack, then a head with 5 blocks and 4 lclusters.
        entries[0] = (2, 0x803);
        entries[2] = (2, 0x805);
        entries[3] = (2, 2);
        entries[4] = (2, 3);
        let bytes = pack(entries, 100);
        let load = |slot| decoder(&bytes, true).lcluster(slot, 0).unwrap();
        assert_eq!(
            [load(1).block, load(5).block, load(6).block],
            [103, 108, 109]
        );
        assert_eq!(
            (load(2).stored_blocks, load(2).back, load(2).forward),
            (Some(5), 1, 3)
        );
        assert!(decoder(&bytes, false).lcluster(2, 0).is_err());
    }

    #[test]
    fn a_hole_takes_no_blocks_from_the_heads_behind_it() {
        let mut entries = [(1, 0); 16];
        // The count of a hole whose head is in the previous pack, then a hole of 4 lclusters.
        entries[0] = (2, 0x800);
        entries[2] = (2, 0x800);
        entries[3] = (2, 2);
        entries[4] = (2, 3);
        let bytes = pack(entries, 100);
        let load = |slot| decoder(&bytes, true).lcluster(slot, 0).unwrap();
        assert_eq!(
            [load(1).block, load(5).block, load(6).block],
            [100, 100, 101]
        );
        assert_eq!(
            (load(2).stored_blocks, load(2).back, load(2).forward),
            (Some(0), 1, 3)
        );
    }

    #[test]
    fn a_non_head_right_behind_a_head_needs_its_count() {
        let mut entries = [(1, 0); 16];
        entries[1] = (2, 1);
        let bytes = pack(entries, 100);
        assert!(decoder(&bytes, true).lcluster(5, 0).is_err());
    }
}
