//! The superblock.

use crate::{Algorithm, Nid};

/// The superblock, checked. Addresses and counts are as on disk, 48-bit parts joined.
#[derive(Clone, Debug)]
pub struct Superblock {
    /// Binary logarithm of the block size, 9 to 16.
    pub block_bits: u8,
    /// Block size in bytes.
    pub block_size: u32,
    /// `feature_compat`, unknown bits included.
    pub feature_compat: u32,
    /// `feature_incompat`; unknown bits are refused at open.
    pub feature_incompat: u32,
    /// Bytes of the superblock: 128 and 16 for each extension slot.
    pub size: u32,
    /// The root directory.
    pub root_nid: Nid,
    /// The packed inode, where fragments live.
    pub packed_nid: Option<Nid>,
    /// The metabox inode, where metadata of other inodes lives.
    pub metabox_nid: Option<Nid>,
    /// Count of inodes (statfs).
    pub inos: u64,
    /// Blocks of the primary device.
    pub blocks: u64,
    /// First block of the metadata area: nid 0.
    pub meta_block: u32,
    /// First block of the shared xattrs.
    pub xattr_block: u32,
    /// UUID of the volume.
    pub uuid: [u8; 16],
    /// Label, without the padding.
    pub volume_name: Vec<u8>,
    /// Seconds that times of compact inodes count from.
    pub epoch: i64,
    /// Nanoseconds of the times of compact inodes.
    pub fixed_nsec: u32,
    /// Seconds from `epoch` to when the image was made.
    pub build_time: u32,
    /// Extra devices that the image uses.
    pub extra_devices: u16,
    /// Slot of the device table, in units of 128 bytes from the start of the image.
    pub device_slot: u16,
    /// Count of long xattr name prefixes.
    pub xattr_prefix_count: u8,
    /// Where they start, in units of 4 bytes.
    pub xattr_prefix_start: u32,
    /// The names of an inode's xattrs may be tested with its bloom filter.
    pub xattr_filter: bool,
    /// Index of the long prefix that names the content digest of a file, if there is one.
    pub ishare_xattr_prefix: Option<u8>,
    /// What the algorithms need.
    pub compression: CompressionConfigs,
}

/// The algorithms of an image and their settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompressionConfigs {
    /// Bitmap of [`Algorithm::bit`].
    pub available: u16,
    /// LZ4.
    pub lz4: Option<Lz4Config>,
    /// MicroLZMA.
    pub lzma: Option<LzmaConfig>,
    /// DEFLATE.
    pub deflate: Option<DeflateConfig>,
    /// Zstandard.
    pub zstd: Option<ZstdConfig>,
}

/// Settings of LZ4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lz4Config {
    /// Largest distance of a match, in bytes: 65535 if the image does not say.
    pub max_distance: u16,
    /// Blocks of the largest pcluster.
    pub max_pcluster_blocks: u16,
}

/// Settings of MicroLZMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LzmaConfig {
    /// Bytes of the dictionary, 4 KiB to 8 MiB.
    pub dict_size: u32,
}

/// Settings of DEFLATE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflateConfig {
    /// Binary logarithm of the window, 8 to 15.
    pub window_bits: u8,
}

/// Settings of Zstandard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZstdConfig {
    /// Binary logarithm of the largest window, 10 to 20.
    pub window_log: u8,
}

impl Superblock {
    /// The algorithms that pclusters of the image may use.
    pub fn algorithms(&self) -> impl Iterator<Item = Algorithm> + '_ {
        Algorithm::ALL.into_iter().filter(|a| self.compression.available & a.bit() != 0)
    }

    /// Compressed bytes stand at the END of their pcluster, zeros in front (`ZERO_PADDING`).
    pub fn zero_padding(&self) -> bool {
        self.feature_incompat & 1 != 0
    }

    /// Names of the features in use, known ones by name, others by number.
    pub fn feature_names(&self) -> Vec<String> {
        todo!()
    }
}
