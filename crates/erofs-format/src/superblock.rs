//! The superblock.

use crate::compression::{self, CompressionConfigs};
use crate::meta::{Meta, until_nul};
use crate::raw::{MAGIC, RawSuperblock, SUPER_OFFSET, compat, incompat};
use crate::{Algorithm, Error, NID_IN_METABOX, Nid, Result};

/// The superblock, checked. Addresses and counts are as on disk, with 48-bit parts joined.
#[derive(Clone, Debug)]
pub struct Superblock {
    /// Binary logarithm of the block size, 9 to 16.
    pub block_bits: u8,
    /// Block size in bytes.
    pub block_size: u32,
    /// `feature_compat`, including unknown bits.
    pub feature_compat: u32,
    /// `feature_incompat`; unknown bits are rejected when opening.
    pub feature_incompat: u32,
    /// Bytes in the superblock: 128 plus 16 for each extension slot.
    pub size: u32,
    /// The root directory.
    pub root_nid: Nid,
    /// The packed inode, which contains fragments, and whose content the source must provide.
    pub packed_nid: Option<Nid>,
    /// The metabox inode, which contains other inodes' metadata, and whose content the source must
    /// provide.
    pub metabox_nid: Option<Nid>,
    /// Number of inodes (statfs).
    pub inos: u64,
    /// Number of blocks of the primary device.
    pub blocks: u64,
    /// First block of the metadata area: nid 0.
    pub meta_block: u32,
    /// First block of the shared xattrs.
    pub xattr_block: u32,
    /// UUID of the volume.
    pub uuid: [u8; 16],
    /// Label, without the padding.
    pub volume_name: Vec<u8>,
    /// Time, in seconds, to which times of compact inodes are relative.
    pub epoch: i64,
    /// Nanoseconds of the times of compact inodes.
    pub fixed_nsec: u32,
    /// Seconds from `epoch` to when the image was made.
    pub build_time: u32,
    /// Number of extra devices that the image uses.
    pub extra_devices: u16,
    /// Slot of the device table, in units of 128 bytes from the start of the image.
    pub device_slot: u16,
    /// Number of long xattr name prefixes.
    pub xattr_prefix_count: u8,
    /// Where the long prefixes start, in units of 4 bytes.
    pub xattr_prefix_start: u32,
    /// Whether the names of an inode's xattrs may be tested with its bloom filter.
    pub xattr_filter: bool,
    /// Index of the long prefix that names the content digest of a file, if there is one.
    pub ishare_xattr_prefix: Option<u8>,
    /// Settings of the algorithms.
    pub compression: CompressionConfigs,
}

/// Smallest and largest block size that the format can sensibly express: the kernel's lower bound,
/// and 64 KiB (the kernel's upper bound is the page size of the machine, which is irrelevant here).
const BLOCK_BITS: std::ops::RangeInclusive<u8> = 9..=16;

/// The kernel reads the superblock from one 4 KiB page: anything that does not fit there is not a
/// superblock.
const MAX_SUPERBLOCK: u32 = 4096 - SUPER_OFFSET as u32;

impl Superblock {
    /// Reads and checks the superblock at byte 1024 and the configurations after it. The
    /// superblock's checksum is checked only if `verify`.
    pub(crate) fn read(meta: &Meta<'_>, verify: bool) -> Result<Superblock> {
        let raw = read_raw(meta)?;
        check_shape(&raw)?;
        if verify {
            verify_checksum(meta, &raw)?;
        }
        check_features(&raw)?;
        let mut superblock = parse(&raw)?;
        superblock.compression = compression::read(
            meta,
            superblock.has(incompat::COMPR_CFGS),
            raw.algorithms_or_lz4_distance.get(),
            SUPER_OFFSET + u64::from(superblock.size),
            superblock.block_size,
        )?;
        Ok(superblock)
    }

    pub(crate) fn has(&self, incompat: u32) -> bool {
        self.feature_incompat & incompat != 0
    }

    pub(crate) fn has_compat(&self, compat: u32) -> bool {
        self.feature_compat & compat != 0
    }

    /// The algorithms that pclusters of the image may use.
    pub fn algorithms(&self) -> impl Iterator<Item = Algorithm> + '_ {
        Algorithm::ALL
            .into_iter()
            .filter(|a| self.compression.available & a.bit() != 0)
    }

    /// Whether compressed bytes are at the end of their pcluster, with zeros in front
    /// (`ZERO_PADDING`).
    pub fn zero_padding(&self) -> bool {
        self.has(incompat::ZERO_PADDING)
    }

    /// Whether the image uses a feature that permits holes: chunked files, whose chunks may have no
    /// block, or `48BIT`, whose compressed extents may have no bytes. No feature bit says whether
    /// pclusters are holes; [`crate::Reader::has_holes`] finds them.
    pub fn has_holes(&self) -> bool {
        self.has(incompat::CHUNKED_FILE | incompat::BIT48)
    }

    /// Names of the features in use; unknown ones are given by number.
    pub fn feature_names(&self) -> Vec<String> {
        let mut names = bit_names(self.feature_compat, &compat::NAMES, "compat");
        names.extend(bit_names(
            self.feature_incompat,
            &incompat::NAMES,
            "incompat",
        ));
        names
    }
}

fn bit_names(bits: u32, known: &[&str], kind: &str) -> Vec<String> {
    (0..32)
        .filter(|bit| bits & (1 << bit) != 0)
        .map(|bit| match known.get(bit as usize) {
            Some(name) => (*name).to_owned(),
            None => format!("{kind}-bit-{bit}"),
        })
        .collect()
}

/// Reads the first 128 bytes, and the extension slots if the superblock counts them.
fn read_raw(meta: &Meta<'_>) -> Result<RawSuperblock> {
    let mut bytes = [0; size_of::<RawSuperblock>()];
    let base = 128;
    if meta.size < SUPER_OFFSET + base as u64 {
        let (size, needed) = (meta.size, SUPER_OFFSET + base as u64);
        let bytes = if size == 1 { "byte" } else { "bytes" };
        let reason = format!("{size} {bytes}, too short for a superblock (needs {needed})").into();
        return Err(Error::NotErofs { reason });
    }
    meta.read(&mut bytes[..base], SUPER_OFFSET)?;
    let raw: RawSuperblock = crate::meta::structure(&bytes);
    if raw.magic.get() != MAGIC {
        let magic = raw.magic.get();
        let reason = format!("magic {magic:#010x} at byte 1024 instead of {MAGIC:#010x}").into();
        return Err(Error::NotErofs { reason });
    }
    if raw.sb_extslots == 0 {
        return Ok(raw);
    }
    meta.read(&mut bytes[base..], SUPER_OFFSET + base as u64)?;
    Ok(crate::meta::structure(&bytes))
}

fn check_shape(raw: &RawSuperblock) -> Result<()> {
    if !BLOCK_BITS.contains(&raw.blkszbits) {
        let bits = raw.blkszbits;
        return unsupported!("block size of 2^{bits} bytes (2^9 to 2^16 are supported)");
    }
    let size = superblock_size(raw);
    if size > MAX_SUPERBLOCK {
        return corrupted!(
            "superblock of {size} bytes ({} extension slots); the limit is {MAX_SUPERBLOCK}",
            raw.sb_extslots
        );
    }
    Ok(())
}

fn superblock_size(raw: &RawSuperblock) -> u32 {
    128 + u32::from(raw.sb_extslots) * 16
}

/// Bytes that the checksum covers: from the superblock to the end of its block, or one whole block
/// if blocks are no larger than what precedes the superblock.
fn checksummed_length(block_size: u32) -> u32 {
    match block_size.checked_sub(SUPER_OFFSET as u32) {
        None | Some(0) => block_size,
        Some(behind) => behind,
    }
}

fn verify_checksum(meta: &Meta<'_>, raw: &RawSuperblock) -> Result<()> {
    if raw.feature_compat.get() & compat::SB_CHKSUM == 0 {
        return Ok(());
    }
    let mut bytes = vec![0; checksummed_length(1 << raw.blkszbits) as usize];
    meta.read(&mut bytes, SUPER_OFFSET)?;
    // The checksum is computed as if its own field were zero.
    bytes[4..8].fill(0);
    let crc = crc32c(&bytes);
    if crc == raw.checksum.get() {
        return Ok(());
    }
    let stored = raw.checksum.get();
    corrupted!("superblock checksum mismatch: computed {crc:#010x}, stored {stored:#010x}")
}

/// CRC-32C without the final inversion, as EROFS stores it. Computed bit by bit, since a mount
/// needs it only once, for at most 64 KiB.
fn crc32c(bytes: &[u8]) -> u32 {
    /// The polynomial (Castagnoli), bits reversed.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let shifted = |crc: u32| (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
    let add = |crc, &byte: &u8| (0..8).fold(crc ^ u32::from(byte), |crc, _| shifted(crc));
    bytes.iter().fold(!0, add)
}

fn check_features(raw: &RawSuperblock) -> Result<()> {
    let unknown = raw.feature_incompat.get() & !incompat::ALL;
    if unknown != 0 {
        let bits: Vec<String> = (0..32)
            .filter(|bit| unknown & (1 << bit) != 0)
            .map(|bit| bit.to_string())
            .collect();
        return unsupported!(
            "feature_incompat {unknown:#x} (bit {}): this image needs a newer reader",
            bits.join(", ")
        );
    }
    // As in the kernel, directory blocks must have the image's block size.
    if raw.dirblkbits != 0 {
        let bits = raw.dirblkbits;
        return unsupported!("dirblkbits {bits} (directory block size)");
    }
    Ok(())
}

fn parse(raw: &RawSuperblock) -> Result<Superblock> {
    let incompat = raw.feature_incompat.get();
    let compat = raw.feature_compat.get();
    let wide = incompat & incompat::BIT48 != 0 && raw.rootnid_8b.get() != 0;
    let high = raw.rootnid_2b_or_blocks_hi.get();
    let devices = incompat & incompat::DEVICE_TABLE != 0;
    let prefixes = incompat & incompat::XATTR_PREFIXES != 0;
    let packed = raw.packed_nid.get();
    let fragments = incompat & incompat::FRAGMENTS != 0;
    Ok(Superblock {
        block_bits: raw.blkszbits,
        block_size: 1 << raw.blkszbits,
        feature_compat: compat,
        feature_incompat: incompat,
        size: superblock_size(raw),
        root_nid: if wide {
            raw.rootnid_8b.get()
        } else {
            u64::from(high)
        },
        // Fragments and dedupe share a bit: with only dedupe there is no packed inode.
        packed_nid: (fragments && packed != 0).then_some(packed),
        metabox_nid: metabox_nid(raw)?,
        inos: raw.inos.get(),
        blocks: u64::from(raw.blocks_lo.get()) | if wide { u64::from(high) << 32 } else { 0 },
        meta_block: raw.meta_blkaddr.get(),
        xattr_block: raw.xattr_blkaddr.get(),
        uuid: raw.uuid,
        volume_name: until_nul(&raw.volume_name).to_vec(),
        epoch: raw.epoch.get().cast_signed(),
        fixed_nsec: raw.fixed_nsec.get(),
        build_time: raw.build_time.get(),
        extra_devices: if devices { raw.extra_devices.get() } else { 0 },
        device_slot: raw.devt_slotoff.get(),
        xattr_prefix_count: if prefixes { raw.xattr_prefix_count } else { 0 },
        xattr_prefix_start: raw.xattr_prefix_start.get(),
        xattr_filter: compat & compat::XATTR_FILTER != 0 && raw.xattr_filter_reserved == 0,
        ishare_xattr_prefix: ishare_prefix(raw)?,
        compression: CompressionConfigs::default(),
    })
}

fn metabox_nid(raw: &RawSuperblock) -> Result<Option<Nid>> {
    if raw.feature_incompat.get() & incompat::METABOX == 0 {
        return Ok(None);
    }
    if raw.sb_extslots == 0 {
        return corrupted!("metabox feature without the extension slot for its nid");
    }
    let nid = raw.metabox_nid.get();
    if nid & NID_IN_METABOX != 0 {
        return corrupted!("the metabox (nid {nid:#x}) is inside itself");
    }
    Ok(Some(nid))
}

fn ishare_prefix(raw: &RawSuperblock) -> Result<Option<u8>> {
    let both = raw.feature_compat.get() & compat::ISHARE_XATTRS != 0
        && raw.feature_incompat.get() & incompat::XATTR_PREFIXES != 0;
    if !both {
        return Ok(None);
    }
    let (id, count) = (raw.ishare_xattr_prefix_id, raw.xattr_prefix_count);
    if id >= count {
        return corrupted!("digest xattr prefix {id} of {count} prefixes");
    }
    Ok(Some(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_covers_the_rest_of_the_block_or_one_block() {
        assert_eq!(checksummed_length(4096), 3072);
        assert_eq!(checksummed_length(65536), 64512);
        assert_eq!(checksummed_length(1024), 1024);
        assert_eq!(checksummed_length(512), 512);
    }

    #[test]
    fn crc32c_gives_the_well_known_check_value() {
        assert_eq!(!crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn unknown_bits_are_named_by_number() {
        assert_eq!(
            bit_names(0b101 | 1 << 30, &["a", "b"], "compat"),
            ["a", "compat-bit-2", "compat-bit-30"]
        );
    }
}
