//! `dump.erofs --nid` and `--path`: one inode.

use std::io::Write;
use std::ops::ControlFlow;

use erofs_engine::Engine;
use erofs_engine::erofs_format::{DataLayout, Extent, ExtentKind, Inode, Nid, Superblock};

use super::report::{percent, shown};
use crate::cli::tools::erofs_utils::DumpArgs;
use crate::tools::info::each_extent;
use crate::tools::text;
use crate::tools::tree;

/// Names of file types, indexed by their number in directories.
pub const TYPES: [&str; 8] = [
    "unknown type",
    "regular file",
    "directory",
    "char dev",
    "block dev",
    "FIFO file",
    "SOCK file",
    "symlink file",
];

/// Number of bytes that an inode's content occupies in the image, according to the inode.
pub fn on_disk(inode: &Inode) -> u64 {
    match inode.is_compressed() {
        true => inode.blocks.saturating_mul(512),
        false => inode.size,
    }
}

/// Prints the inode.
pub fn print(engine: &Engine, inode: &Inode, args: &DumpArgs) -> anyhow::Result<()> {
    let path = shown(&path(engine, inode.nid)?);
    let (size, stored) = (inode.size, on_disk(inode));
    let mut out = erofast_cli::stdout();
    out.write_all(&[b"Path : ", &path[..], b"\n"].concat())?;
    let kind = TYPES[inode.file_type() as usize];
    outln!("Size: {size}  On-disk size: {stored}  {kind}");
    let Inode {
        nid,
        nlink,
        uid,
        gid,
        ..
    } = inode;
    let (layout, ratio) = (layout(inode), percent(stored, size));
    outln!("NID: {nid}   Links: {nlink}   Layout: {layout}   Compression ratio: {ratio}%");
    let inode_size = if inode.extended { 64 } else { 32 };
    outln!(
        "Inode size: {inode_size}   Xattr size: {}",
        xattr_size(inode)
    );
    let permissions = text::permissions(inode.mode & 0o777);
    outln!(
        "Uid: {uid}   Gid: {gid}  Access: {:04o}/{permissions}",
        inode.mode & 0o777
    );
    let time = text::time(text::local(inode.mtime));
    outln!("Timestamp: {time}.{:09}", inode.mtime_nsec);
    if args.ls {
        list(engine, inode, &mut out)?;
    }
    if args.extents {
        let count = extents(engine, inode)?;
        out.write_all(&path)?;
        outln!(": {count} extents found");
    }
    Ok(())
}

/// The first path of an inode in the tree.
fn path(engine: &Engine, nid: Nid) -> anyhow::Result<Vec<u8>> {
    if engine.image().superblock().packed_nid == Some(nid) {
        return Ok(b"(packed file)".to_vec());
    }
    let mut entries = tree::walk(engine, &engine.inode(engine.root())?).flatten();
    let found = entries.find(|entry| entry.inode.nid == nid);
    Ok(found.map_or_else(
        || b"(not found)".to_vec(),
        |entry| [b"/", &entry.path[..]].concat(),
    ))
}

fn layout(inode: &Inode) -> u8 {
    match inode.layout() {
        DataLayout::FlatPlain => 0,
        DataLayout::CompressedFull => 1,
        DataLayout::FlatInline => 2,
        DataLayout::CompressedCompact => 3,
        DataLayout::ChunkBased => 4,
    }
}

/// Size of the attributes in bytes, from the inode's count: 12 for a count of 1, and 4 for each
/// further one.
fn xattr_size(inode: &Inode) -> u32 {
    match inode.xattr_icount {
        0 => 0,
        count => 8 + 4 * u32::from(count),
    }
}

fn list(engine: &Engine, inode: &Inode, out: &mut impl Write) -> anyhow::Result<()> {
    outln!("\n       NID TYPE  FILENAME");
    let mut written = Ok(());
    engine.read_dir_strict(inode, 0, &mut |entry| {
        // A `.` entry that the image does not store is not listed.
        written = match entry {
            Ok(entry) if entry.name == b"." && inode.dot_omitted => Ok(()),
            Ok(entry) => {
                let row = format!("{:>10}    {}  ", entry.nid, entry.file_type).into_bytes();
                out.write_all(&[row, shown(entry.name), b"\n".to_vec()].concat())
                    .map_err(Into::into)
            }
            Err(error) => Err(anyhow::Error::from(error)),
        };
        match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        }
    })?;
    written
}

fn extents(engine: &Engine, inode: &Inode) -> anyhow::Result<usize> {
    outln!("\n Ext:   logical offset   |  length :     physical offset    |  length");
    let mut count = 0;
    for extent in each_extent(engine, inode) {
        for extent in pieces(engine.image().superblock(), inode, &extent?) {
            row(count, inode, &extent)?;
            count += 1;
        }
    }
    Ok(count)
}

/// An extent as erofs-utils lists it: every chunk is a separate extent, and uncompressed data
/// extends to the end of its last block.
fn pieces(superblock: &Superblock, inode: &Inode, extent: &Extent) -> Vec<Extent> {
    let block = u64::from(superblock.block_size);
    let end = match inode.layout() {
        DataLayout::FlatPlain | DataLayout::ChunkBased => extent.end().next_multiple_of(block),
        _ => extent.end(),
    };
    let size = inode.chunk_size(superblock).unwrap_or(u64::MAX);
    let mut pieces = Vec::new();
    let mut logical = extent.logical;
    while logical < end {
        let length = (end - logical).min(size);
        let mut kind = extent.kind.clone();
        if let ExtentKind::Raw { physical, .. } = &mut kind {
            *physical += logical - extent.logical;
        }
        // A chunk without data has an invalid address.
        if kind == ExtentKind::Hole && size < u64::MAX {
            let physical = u64::from(u32::MAX) * block;
            kind = ExtentKind::Raw {
                device: 0,
                physical,
            };
        }
        pieces.push(Extent {
            logical,
            length,
            kind,
        });
        logical += length;
    }
    pieces
}

fn row(number: usize, inode: &Inode, extent: &Extent) -> anyhow::Result<()> {
    let (begin, end, length) = (extent.logical, extent.end(), extent.length);
    let is_hole = extent.kind == ExtentKind::Hole && inode.is_compressed();
    let place = extent.location();
    let (device, at) = place.map_or((0, 0), |place| (place.device, place.physical));
    let stored = match extent.kind {
        ExtentKind::Hole if !is_hole => length,
        _ => extent.stored(),
    };
    let remark = match device {
        0 if is_hole => "  # hole".to_owned(),
        0 => String::new(),
        device => format!("  # device {device}"),
    };
    let to = at.saturating_add(stored);
    outln!(
        "{number:>4}: {begin:>8}..{end:>8} | {length:>7} : {at:>10}..{to:>10} | {stored:>7}{remark}"
    );
    Ok(())
}
