//! Where a file's bytes are stored, and which files own the bytes of a block.

use std::ops::Range;
use std::sync::Arc;

use erofast_cli::print_json;
use erofs_engine::Engine;
use erofs_engine::erofs_format::{Coding, Error, Extent, ExtentKind, FileType, Inode, Nid, Reader};
use serde::Serialize;

use crate::tools::name::EntryPath;
use crate::tools::tree;
use crate::tools::{glob, text};

/// Maximum number of extents examined in a file, enough for 256 GiB in extents of 64 KiB.
const EXTENTS: usize = 1 << 22;
/// Maximum number of extents in a JSON list, which is kept in memory.
const ROWS: usize = 1 << 20;
/// Maximum number of owners listed for a block.
const OWNERS: usize = 10_000;

/// One extent, as printed.
#[derive(Debug, Serialize)]
pub struct Row {
    /// Offset in the file, and the number of bytes.
    offset: u64,
    length: u64,
    /// `lz4` and the like, `stored`, `plain`, `inline`, `fragment` or `hole`.
    kind: &'static str,
    /// Location of the stored bytes: device (0: the image itself) and byte offset there; for a
    /// fragment, the offset in the packed inode. `None` for a hole.
    device: Option<u16>,
    physical: Option<u64>,
    /// Number of bytes stored there.
    stored: u64,
    /// Where the bytes are if not on a device: in the decoded metabox or in the packed inode.
    #[serde(skip_serializing_if = "Option::is_none")]
    inside: Option<&'static str>,
}

impl From<&Extent> for Row {
    fn from(extent: &Extent) -> Self {
        let place = extent.location();
        let in_metabox = place.filter(|place| place.metabox);
        let (physical, inside) = match &extent.kind {
            ExtentKind::Fragment { offset } => (Some(*offset), Some("packed inode")),
            _ => (
                place.map(|place| place.physical),
                in_metabox.map(|_| "metabox"),
            ),
        };
        Self {
            offset: extent.logical,
            length: extent.length,
            kind: kind(extent),
            device: place.map(|place| place.device),
            physical,
            stored: extent.stored(),
            inside,
        }
    }
}

impl Row {
    /// The range of the image itself that the extent occupies.
    fn on_image(&self) -> Option<Range<u64>> {
        if self.device != Some(0) || self.inside.is_some() {
            return None;
        }
        self.physical.map(|at| at..at.saturating_add(self.stored))
    }
}

/// The kind of an extent, in one word.
pub fn kind(extent: &Extent) -> &'static str {
    match &extent.kind {
        ExtentKind::Hole => "hole",
        ExtentKind::Raw { .. } => "plain",
        ExtentKind::Meta { .. } => "inline",
        ExtentKind::Fragment { .. } => "fragment",
        ExtentKind::Compressed(pcluster) => match pcluster.coding {
            Coding::Compressed(algorithm) => algorithm.name(),
            Coding::Shifted | Coding::Interlaced => "stored",
        },
    }
}

/// The extents of an inode that has data. An error ends the sequence, as its last item.
pub fn each(engine: &Engine, inode: &Inode) -> impl Iterator<Item = Result<Extent, Error>> {
    let (mut offset, mut count) = (0, 0);
    std::iter::from_fn(move || {
        if offset >= inode.size {
            return None;
        }
        count += 1;
        let map = |image: Reader<'_>| image.map(inode, offset);
        let extent = match count > EXTENTS {
            true => Err(Error::Unsupported {
                feature: format!("more than {EXTENTS} extents in nid {}", inode.nid).into(),
            }),
            false => engine.with_image(&engine.waiting(), inode.nid, map),
        };
        offset = extent.as_ref().map_or(inode.size, Extent::end);
        Some(extent)
    })
}

/// Runs `info --extents PATH`.
pub fn list(engine: &Engine, path: &[u8], json: bool) -> anyhow::Result<()> {
    let (path, inode) = glob::resolve(engine, path, false)?;
    let path = text::name(&path);
    anyhow::ensure!(
        has_data(&inode),
        "{}: {path}: has no data of its own",
        engine.name()
    );
    if json {
        return list_json(engine, &path, &inode);
    }
    outln!(
        "{:>12} {:>10}  {:<8} {:>6} {:>14} {:>10}",
        "offset",
        "length",
        "kind",
        "device",
        "at",
        "stored"
    );
    each(engine, &inode).try_for_each(|extent| print_row(&Row::from(&extent?)))
}

fn list_json(engine: &Engine, path: &str, inode: &Inode) -> anyhow::Result<()> {
    let rows = each(engine, inode).take(ROWS + 1);
    let rows: Vec<Row> = rows
        .map(|extent| Ok(Row::from(&extent?)))
        .collect::<anyhow::Result<_>>()?;
    anyhow::ensure!(
        rows.len() <= ROWS,
        "{}: {path}: more than {ROWS} extents: omit --json to list them",
        engine.name()
    );
    print_json(&rows)
}

fn print_row(row: &Row) -> anyhow::Result<()> {
    let number = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    outln!(
        "{:>12} {:>10}  {:<8} {:>6} {:>14} {:>10}{}",
        row.offset,
        row.length,
        row.kind,
        number(row.device.map(u64::from)),
        number(row.physical),
        row.stored,
        row.inside
            .map_or(String::new(), |inside| format!("  in the {inside}"))
    );
    Ok(())
}

fn has_data(inode: &Inode) -> bool {
    matches!(
        inode.file_type(),
        FileType::Regular | FileType::Directory | FileType::Symlink
    )
}

/// A file or structure that owns bytes in a block.
#[derive(Debug, Default, Serialize)]
struct Owner {
    /// The kind of owner: `superblock`, `inode` or `data`.
    what: &'static str,
    #[serde(flatten)]
    path: Option<EntryPath>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nid: Option<Nid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extent: Option<Row>,
}

#[derive(Debug, Serialize)]
struct Block {
    block: u64,
    /// Byte range in the image.
    begin: u64,
    end: u64,
    owners: Vec<Owner>,
}

/// Runs `info --block N`, which finds the owners of the bytes in a block of the image itself.
pub fn block(engine: &Engine, number: u64, json: bool) -> anyhow::Result<()> {
    let superblock = engine.image().superblock();
    let size = u64::from(superblock.block_size);
    let image = engine.image().device_size(0).unwrap_or(0);
    let begin = number.checked_mul(size).filter(|begin| *begin < image);
    let Some(begin) = begin else {
        anyhow::bail!(
            "{}: has only {} blocks of {size} bytes: there is no block {number}",
            engine.name(),
            image.div_ceil(size)
        );
    };
    let mut found = Block {
        block: number,
        begin,
        end: (begin + size).min(image),
        owners: Vec::new(),
    };
    if overlap(&(found.begin..found.end), &(1024..1024 + 128)) {
        found.owners.push(Owner {
            what: "superblock",
            ..Owner::default()
        });
    }
    let special = [
        (superblock.packed_nid, "(packed inode)"),
        (superblock.metabox_nid, "(metabox)"),
    ];
    for (nid, name) in special {
        if let Some(inode) = nid.and_then(|nid| engine.inode(nid).ok()) {
            found.look_at(engine, name.as_bytes(), &inode);
        }
    }
    let root = engine.inode(engine.root())?;
    let entries = tree::walk(engine, &root).flatten();
    for entry in entries.filter(|entry| entry.first) {
        let path = [b"/", entry.path.as_slice()].concat();
        found.look_at(engine, &path, &entry.inode);
    }
    if json {
        return print_json(&found);
    }
    outln!(
        "block {number}, bytes {begin} to {} of {}:",
        found.end - 1,
        engine.name()
    );
    for owner in &found.owners {
        let path = owner
            .path
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default();
        match (&owner.extent, owner.nid) {
            (Some(row), Some(nid)) => outln!(
                "data of {path} (nid {nid}): bytes {} to {}, {}, {} bytes stored at {}",
                row.offset,
                row.offset + row.length - 1,
                row.kind,
                row.stored,
                row.physical.unwrap_or_default()
            ),
            (None, Some(nid)) => outln!("inode of {path} (nid {nid})"),
            _ => outln!("{}", owner.what),
        }
    }
    if found.owners.is_empty() {
        outln!(
            "holds neither an inode nor file data: it is an index, shared attributes, a table, or \
             unused"
        );
    }
    Ok(())
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Block {
    /// Adds an inode if it overlaps the block, and those of its extents that do.
    fn look_at(&mut self, engine: &Engine, path: &[u8], inode: &Arc<Inode>) {
        let block = self.begin..self.end;
        let mut own = |what, extent| {
            if self.owners.len() < OWNERS {
                self.owners.push(Owner {
                    what,
                    path: Some(EntryPath::new(path)),
                    nid: Some(inode.nid),
                    extent,
                });
            }
        };
        if engine.numbers().image(inode.nid) > 0 {
            // The inode is in a lower image, so none of its bytes are in the block.
            return;
        }
        let superblock = engine.image().superblock();
        let base = u64::from(superblock.meta_block) * u64::from(superblock.block_size);
        let at = base.saturating_add(inode.nid.saturating_mul(32));
        let core = if inode.extended { 64 } else { 32 };
        if !inode.in_metabox() && overlap(&block, &(at..at.saturating_add(core))) {
            own("inode", None);
        }
        if !has_data(inode) {
            return;
        }
        // `check` reports extents that cannot be mapped.
        for extent in each(engine, inode).flatten() {
            let row = Row::from(&extent);
            if row.on_image().is_some_and(|range| overlap(&block, &range)) {
                own("data", Some(row));
            }
        }
    }
}
