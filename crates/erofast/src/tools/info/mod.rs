//! `erofast info`: superblock, features, codecs and sizes of an image.

mod extents;
mod spread;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;

use erofast_cli::{Outcome, print_json, units};
use erofs_engine::erofs_format::{DataLayout, FileType, Image, Inode, Superblock};
use erofs_engine::{Engine, WorkersMode};
use serde::Serialize;

use self::spread::Spread;

pub use self::extents::each as each_extent;

use crate::cli::tools::images::InfoArgs;
use crate::tools::name::hex;
use crate::tools::text;
use crate::tools::tree;

/// The JSON output of `info`.
#[derive(Debug, Default, Serialize)]
struct Report {
    image: String,
    volume_name: String,
    uuid: String,
    build_time: i64,
    block_size: u32,
    features: Vec<String>,
    /// Codecs that the image declares.
    codecs: Vec<String>,
    /// Number of inodes according to the superblock.
    inodes: u64,
    root_nid: u64,
    packed_nid: Option<u64>,
    metabox_nid: Option<u64>,
    extra_devices: u16,
    /// Size in bytes of the image and its extra devices, and of the images below.
    image_bytes: u64,
    /// All images if several make up one tree, the top one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    layers: Vec<Layer>,
    /// The part that is missing from a truncated image.
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<String>,
    /// Bytes of all regular files, hard links counted once.
    content_bytes: u64,
    /// Ratio of stored bytes to content bytes.
    ratio: Option<f64>,
    /// Number of distinct inodes in the tree, by file type.
    types: BTreeMap<&'static str, u64>,
    layouts: BTreeMap<&'static str, u64>,
    /// Extents of regular files, by kind.
    extents: BTreeMap<String, Extents>,
    /// Distribution of sizes and ratios of regular files.
    files: Spread,
    /// Number of files with broken extents and of unreadable entries, which `check` lists.
    unreadable: u64,
}

/// One of several images of a tree.
#[derive(Debug, Serialize)]
struct Layer {
    image: String,
    uuid: String,
    /// Size in bytes of the image and its extra devices.
    image_bytes: u64,
    /// The number of inodes according to its superblock.
    inodes: u64,
}

impl Layer {
    fn new((name, image): (&str, &Image)) -> Self {
        let superblock = image.superblock();
        let sizes = (0..=superblock.extra_devices).filter_map(|index| image.device_size(index));
        Self {
            image: name.to_owned(),
            uuid: uuid(&superblock.uuid),
            image_bytes: sizes.sum(),
            inodes: superblock.inos,
        }
    }
}

#[derive(Debug, Default, Serialize)]
struct Extents {
    count: u64,
    /// Bytes in the image; a pcluster shared by several extents counts for each of them.
    stored_bytes: u64,
    /// Bytes of content in these extents.
    bytes: u64,
}

/// Runs the subcommand.
pub fn run(args: &InfoArgs) -> anyhow::Result<Outcome> {
    let report = args.image.read(WorkersMode::Inline, |engine| {
        match (&args.extents, args.block) {
            (Some(path), _) => extents::list(engine, path.as_bytes(), args.json)?,
            (None, Some(number)) => extents::block(engine, number, args.json)?,
            (None, None) => return survey(engine).map(Some),
        }
        Ok(None)
    })?;
    match report {
        Some(report) if args.json => print_json(&report)?,
        Some(report) => print(&report)?,
        None => {}
    }
    Ok(Outcome::Fine)
}

fn survey(engine: &Engine) -> anyhow::Result<Report> {
    let mut report = describe(engine, engine.image().superblock());
    report.layers = engine.images().map(Layer::new).collect();
    report.image_bytes = report.layers.iter().map(|layer| layer.image_bytes).sum();
    if report.layers.len() == 1 {
        report.layers.clear();
    }
    let root = engine.inode(engine.root())?;
    for visit in tree::walk(engine, &root) {
        match visit {
            Ok(entry) if entry.first => count(engine, &entry.path, &entry.inode, &mut report),
            Ok(_) => {}
            Err(_) => report.unreadable += 1,
        }
    }
    report.files.finish();
    if report.content_bytes > 0 {
        report.ratio = Some(report.image_bytes as f64 / report.content_bytes as f64);
    }
    Ok(report)
}

fn describe(engine: &Engine, superblock: &Superblock) -> Report {
    Report {
        image: engine.name().to_owned(),
        volume_name: text::name(&superblock.volume_name),
        uuid: uuid(&superblock.uuid),
        build_time: superblock
            .epoch
            .saturating_add(i64::from(superblock.build_time)),
        block_size: superblock.block_size,
        features: superblock.feature_names(),
        codecs: superblock
            .algorithms()
            .map(|algorithm| algorithm.name().to_owned())
            .collect(),
        inodes: superblock.inos,
        root_nid: superblock.root_nid,
        packed_nid: superblock.packed_nid,
        metabox_nid: superblock.metabox_nid,
        extra_devices: superblock.extra_devices,
        truncated: engine.image().truncation(),
        ..Report::default()
    }
}

fn count(engine: &Engine, path: &[u8], inode: &Inode, report: &mut Report) {
    *report
        .types
        .entry(type_name(inode.file_type()))
        .or_default() += 1;
    if inode.size > 0 {
        *report
            .layouts
            .entry(layout_name(inode.layout()))
            .or_default() += 1;
    }
    if inode.file_type() == FileType::Regular && !count_extents(engine, path, inode, report) {
        report.unreadable += 1;
    }
}

/// Adds a file's extents; returns false if not all of them could be found.
fn count_extents(engine: &Engine, path: &[u8], inode: &Inode, report: &mut Report) -> bool {
    let mut stored = 0_u64;
    for extent in extents::each(engine, inode) {
        let Ok(extent) = extent else { return false };
        let sums = report.extents.entry(extents::kind(&extent).to_owned());
        let sums = sums.or_default();
        sums.count += 1;
        sums.stored_bytes = sums.stored_bytes.saturating_add(extent.stored());
        sums.bytes = sums.bytes.saturating_add(extent.length);
        stored = stored.saturating_add(extent.stored());
    }
    report.content_bytes = report.content_bytes.saturating_add(inode.size);
    let compressed = inode.is_compressed();
    report.files.add(path, inode.size, stored, compressed);
    true
}

fn print(report: &Report) -> anyhow::Result<()> {
    let list = |names: &[String]| {
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    };
    outln!("image:       {}", report.image);
    outln!("label:       {}", report.volume_name);
    outln!("uuid:        {}", report.uuid);
    outln!("made:        {} UTC", text::time(report.build_time));
    outln!("block size:  {}", report.block_size);
    outln!("features:    {}", list(&report.features));
    outln!("codecs:      {}", list(&report.codecs));
    outln!("inodes:      {}", report.inodes);
    outln!("size:        {}", units::size(report.image_bytes));
    for layer in &report.layers {
        outln!(
            "  layer:     {}, {}",
            layer.image,
            units::size(layer.image_bytes)
        );
    }
    if let Some(what) = &report.truncated {
        outln!("truncated:   {what}");
    }
    match report.ratio {
        Some(ratio) => {
            outln!(
                "content:     {}, the image takes {:.1} % of that",
                units::size(report.content_bytes),
                ratio * 100.0
            );
        }
        None => outln!("content:     {}", units::size(report.content_bytes)),
    }
    for (kind, count) in &report.types {
        outln!("  {kind:<20} {count:>10}");
    }
    outln!("layouts:");
    for (layout, count) in &report.layouts {
        outln!("  {layout:<20} {count:>10}");
    }
    outln!("extents:");
    for (
        kind,
        Extents {
            count,
            stored_bytes,
            bytes,
        },
    ) in &report.extents
    {
        let (stored, whole) = (units::size(*stored_bytes), units::size(*bytes));
        outln!("  {kind:<20} {count:>10}   {stored:>12} for {whole:>12}");
    }
    report.files.print()?;
    if report.unreadable > 0 {
        let entries = units::count(report.unreadable, "entry");
        outln!("cannot be read: {entries}; erofast check names them");
    }
    Ok(())
}

/// Formats a UUID as `blkid` prints it.
pub fn uuid(bytes: &[u8; 16]) -> String {
    let digits = hex(bytes);
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32];
    parts.map(|range| &digits[range]).join("-")
}

fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "regular files",
        FileType::Directory => "directories",
        FileType::Symlink => "symlinks",
        FileType::CharDevice => "character devices",
        FileType::BlockDevice => "block devices",
        FileType::Fifo => "fifos",
        FileType::Socket => "sockets",
    }
}

fn layout_name(layout: DataLayout) -> &'static str {
    match layout {
        DataLayout::FlatPlain => "flat plain",
        DataLayout::FlatInline => "flat inline",
        DataLayout::CompressedFull => "compressed full",
        DataLayout::CompressedCompact => "compressed compact",
        DataLayout::ChunkBased => "chunk based",
    }
}
