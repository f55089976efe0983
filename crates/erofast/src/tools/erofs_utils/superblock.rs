//! `dump.erofs -s`: prints the superblock.

use std::fmt::Display;

use erofast_cli::print_line;
use erofs_engine::erofs_format::{Algorithm, Image};

use crate::tools::info::uuid;
use crate::tools::text;

/// The bit `COMPR_CFGS` of `feature_incompat`.
const CONFIGS: u32 = 0x2;

/// Names of `feature_compat`, by bit.
const COMPATIBLE: [&str; 6] = [
    "sb_csum",
    "mtime",
    "xattr_filter",
    "shared_ea_in_metabox",
    "plain_xattr_pfx",
    "ishare_xattrs",
];

/// Names of `feature_incompat` with the bit and the Linux version that introduced it, major number
/// first. Some names share a bit.
const INCOMPATIBLE: [(&str, u32, (u32, u32)); 11] = [
    ("lz4_0padding", 0x1, (5, 4)),
    ("compr_cfgs", CONFIGS, (5, 13)),
    ("big_pcluster", 0x2, (5, 13)),
    ("chunked_file", 0x4, (5, 15)),
    ("device_table", 0x8, (5, 16)),
    ("ztailpacking", 0x10, (5, 17)),
    ("fragments", 0x20, (6, 1)),
    ("dedupe", 0x20, (6, 1)),
    ("xattr_prefixes", 0x40, (6, 4)),
    ("48bit", 0x80, (6, 15)),
    ("metabox", 0x100, (6, 17)),
];

/// Names of codecs, with the Linux versions that introduced them.
const CODECS: [(Algorithm, (u32, u32)); 3] = [
    (Algorithm::Lzma, (5, 16)),
    (Algorithm::Deflate, (6, 6)),
    (Algorithm::Zstd, (6, 10)),
];

/// Prints the superblock.
pub fn print(image: &Image) -> anyhow::Result<()> {
    let superblock = image.superblock();
    let devices = image.device_slots().iter();
    let blocks = devices.fold(superblock.blocks, |sum, device| {
        sum.saturating_add(device.blocks)
    });
    let has = |bit: u32| superblock.feature_incompat & bit != 0;
    row("magic number", "0xE0F5E1E2")?;
    row("blocksize", superblock.block_size)?;
    row("blocks", blocks)?;
    row("inode metadata start block", superblock.meta_block)?;
    row("shared xattr metadata start block", superblock.xattr_block)?;
    row("root nid", superblock.root_nid)?;
    superblock
        .packed_nid
        .map_or(Ok(()), |nid| row("packed nid", nid))?;
    superblock
        .metabox_nid
        .map_or(Ok(()), |nid| row("metabox nid", nid))?;
    match superblock.compression.lz4.filter(|_| !has(CONFIGS)) {
        Some(lz4) => row("lz4_max_distance", lz4.max_distance)?,
        None => {
            let names: Vec<&str> = superblock.algorithms().map(Algorithm::name).collect();
            row("compr_algs", names.join(", "))?;
        }
    }
    row("sb_size", superblock.size)?;
    row("inode count", superblock.inos)?;
    let made = superblock
        .epoch
        .saturating_add(superblock.build_time.into());
    row("created", text::ctime(text::local(made)))?;
    let compatible = COMPATIBLE.iter().enumerate();
    let compatible = compatible.filter(|(bit, _)| superblock.feature_compat & (1 << bit) != 0);
    row(
        "compatible features",
        list(compatible.map(|(_, name)| *name)),
    )?;
    let incompatible = INCOMPATIBLE.iter().filter(|(_, bit, _)| has(*bit));
    row(
        "incompatible features",
        list(incompatible.clone().map(|(name, ..)| *name)),
    )?;
    row("UUID", uuid(&superblock.uuid))?;
    let used = CODECS
        .iter()
        .filter(|(codec, _)| superblock.algorithms().any(|used| used == *codec));
    let versions = incompatible.map(|(_, _, version)| version);
    if let Some((major, minor)) = versions.chain(used.map(|(_, version)| version)).max() {
        outln!(
            "{:<46}{major}.{minor}",
            "Required upstream Linux kernel version:"
        );
    }
    Ok(())
}

fn row(name: &str, value: impl Display) -> anyhow::Result<()> {
    let name = format!("Filesystem {name}:");
    Ok(print_line(format_args!("{name:<46}{value}"))?)
}

/// The names, each followed by a space.
fn list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    names.map(|name| format!("{name} ")).collect()
}
