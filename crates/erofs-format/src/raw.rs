//! The on-disk structures, little-endian, without any interpretation.
//!
//! Field order and sizes are those of `fs/erofs/erofs_fs.h`. Unions are kept as bits and decoded by
//! the code that knows which member is meant.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout};

/// Where the superblock starts.
pub(crate) const SUPER_OFFSET: u64 = 1024;
/// `EROFS_SUPER_MAGIC_V1`.
pub(crate) const MAGIC: u32 = 0xe0f5_e1e2;

#[derive(FromBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawSuperblock {
    pub magic: U32,
    pub checksum: U32,
    pub feature_compat: U32,
    pub blkszbits: u8,
    pub sb_extslots: u8,
    /// Root nid of 16 bits, or the high bits of the block count.
    pub rootnid_2b_or_blocks_hi: U16,
    pub inos: U64,
    pub epoch: U64,
    pub fixed_nsec: U32,
    pub blocks_lo: U32,
    pub meta_blkaddr: U32,
    pub xattr_blkaddr: U32,
    pub uuid: [u8; 16],
    pub volume_name: [u8; 16],
    pub feature_incompat: U32,
    /// Bitmap of algorithms, or the LZ4 distance of images without configurations.
    pub algorithms_or_lz4_distance: U16,
    pub extra_devices: U16,
    pub devt_slotoff: U16,
    pub dirblkbits: u8,
    pub xattr_prefix_count: u8,
    pub xattr_prefix_start: U32,
    pub packed_nid: U64,
    pub xattr_filter_reserved: u8,
    pub ishare_xattr_prefix_id: u8,
    pub reserved: [u8; 2],
    pub build_time: U32,
    pub rootnid_8b: U64,
    pub reserved2: U64,
    /// This field and the next one are in an extension slot, present only with `sb_extslots`.
    pub metabox_nid: U64,
    pub reserved3: U64,
}
const _: () = assert!(size_of::<RawSuperblock>() == 144);

#[derive(FromBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawDeviceSlot {
    pub tag: [u8; 64],
    pub blocks_lo: U32,
    pub uniaddr_lo: U32,
    pub blocks_hi: U16,
    pub uniaddr_hi: U16,
    pub reserved: [u8; 52],
}
const _: () = assert!(size_of::<RawDeviceSlot>() == 128);

#[derive(FromBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawInodeCompact {
    pub format: U16,
    pub xattr_icount: U16,
    pub mode: U16,
    /// nlink, or the high bits of a block count or start block.
    pub nb: U16,
    pub size: U32,
    pub mtime: U32,
    /// Block count, start block, device number or chunk format.
    pub u: U32,
    pub ino: U32,
    pub uid: U16,
    pub gid: U16,
    pub reserved: U32,
}
const _: () = assert!(size_of::<RawInodeCompact>() == 32);

#[derive(FromBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawInodeExtended {
    pub format: U16,
    pub xattr_icount: U16,
    pub mode: U16,
    pub nb: U16,
    pub size: U64,
    pub u: U32,
    pub ino: U32,
    pub uid: U32,
    pub gid: U32,
    pub mtime: U64,
    pub mtime_nsec: U32,
    pub nlink: U32,
    pub reserved: [u8; 16],
}
const _: () = assert!(size_of::<RawInodeExtended>() == 64);

#[derive(FromBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawXattrHeader {
    /// A set bit means that no name of the inode hashes to it.
    pub name_filter: U32,
    pub shared_count: u8,
    pub reserved: [u8; 7],
}
const _: () = assert!(size_of::<RawXattrHeader>() == 12);

#[derive(FromBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawXattrEntry {
    pub name_len: u8,
    pub name_index: u8,
    pub value_size: U16,
}
const _: () = assert!(size_of::<RawXattrEntry>() == 4);

#[derive(FromBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawChunkIndex {
    pub startblk_hi: U16,
    pub device_id: U16,
    pub startblk_lo: U32,
}
const _: () = assert!(size_of::<RawChunkIndex>() == 8);

#[derive(FromBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawDirent {
    pub nid: U64,
    pub nameoff: U16,
    pub file_type: u8,
    pub reserved: u8,
}
const _: () = assert!(size_of::<RawDirent>() == 12);

/// `z_erofs_map_header`: its first and last fields have several meanings.
#[derive(FromBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawMapHeader {
    /// Fragment offset, or the size of inline data in the upper half, or the low bits of an extent
    /// count.
    pub first: U32,
    pub advise: U16,
    pub algorithms: u8,
    pub cluster_bits: u8,
}
const _: () = assert!(size_of::<RawMapHeader>() == 8);

#[derive(FromBytes, Immutable, KnownLayout, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawLclusterIndex {
    pub advise: U16,
    pub clusterofs: U16,
    /// Block address of a head, or the two distances of a non-head.
    pub u: U32,
}
const _: () = assert!(size_of::<RawLclusterIndex>() == 8);

/// Bits of `feature_compat`, with the names that mkfs and the kernel use.
pub(crate) mod compat {
    pub const SB_CHKSUM: u32 = 0x1;
    pub const XATTR_FILTER: u32 = 0x4;
    pub const SHARED_EA_IN_METABOX: u32 = 0x8;
    pub const PLAIN_XATTR_PFX: u32 = 0x10;
    pub const ISHARE_XATTRS: u32 = 0x20;
    pub const NAMES: [&str; 6] = [
        "sb_chksum",
        "mtime",
        "xattr_filter",
        "shared_ea_in_metabox",
        "plain_xattr_pfx",
        "ishare_xattrs",
    ];
}

/// Bits of `feature_incompat`. Some stand for two features that were introduced together.
pub(crate) mod incompat {
    pub const ZERO_PADDING: u32 = 0x1;
    /// Also means big pclusters.
    pub const COMPR_CFGS: u32 = 0x2;
    pub const CHUNKED_FILE: u32 = 0x4;
    /// Also means HEAD2.
    pub const DEVICE_TABLE: u32 = 0x8;
    /// Also means dedupe.
    pub const FRAGMENTS: u32 = 0x20;
    pub const XATTR_PREFIXES: u32 = 0x40;
    pub const BIT48: u32 = 0x80;
    pub const METABOX: u32 = 0x100;
    pub const ALL: u32 = (METABOX << 1) - 1;
    pub const NAMES: [&str; 9] = [
        "lz4_0padding",
        "compr_cfgs/big_pcluster",
        "chunked_file",
        "device_table/head2",
        "ztailpacking",
        "fragments/dedupe",
        "xattr_prefixes",
        "48bit",
        "metabox",
    ];
}
