//! `fsck.erofs`: checks an image, or extracts it.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use erofast_cli::{Usage, one_line};
use erofs_engine::erofs_format::{ExtentKind, FileType, Inode};
use erofs_engine::{Engine, EngineOptions, WorkersMode};
use rustix::fs::Mode;
use rustix::process::{geteuid, umask};

use super::report::{message, percent};
use crate::cli::tools::erofs_utils::FsckArgs;
use crate::tools::check::{self, Content};
use crate::tools::extract::{self, Keep, Replace};
use crate::tools::info::each_extent;
use crate::tools::tree;

/// The lowest level at which warnings are printed, and the lowest at which the outcome is.
const WARNINGS: u8 = 2;
const OUTCOME: u8 = 3;

/// Runs the program; returns whether the image is free of faults.
pub fn run(args: &FsckArgs) -> anyhow::Result<bool> {
    let directory = args.extract.as_ref().and_then(Option::as_deref);
    refuse_without_directory(args, directory)?;
    let options = EngineOptions {
        workers: WorkersMode::Inline,
        ignore_checksum: args.no_sbcrc,
        ..EngineOptions::default()
    };
    let read = |engine: &Arc<Engine>| fsck(args, engine, directory);
    args.image.read_with(options, read)
}

fn fsck(args: &FsckArgs, engine: &Arc<Engine>, directory: Option<&Path>) -> anyhow::Result<bool> {
    let start = match args.target.find(engine)? {
        Some(start) => start,
        None => engine.inode(engine.root())?,
    };
    let good = match directory {
        Some(directory) => extract(args, engine, &start, directory).unwrap_or_else(|error| {
            message('E', one_line(&error));
            false
        }),
        None => check(args, engine, &start)?,
    };
    match (good, directory) {
        (false, None) => message('E', "Found some filesystem corruption"),
        (false, Some(_)) => message('E', "Failed to extract filesystem"),
        (true, _) if args.level < OUTCOME => {}
        (true, None) => message('I', "No errors found"),
        (true, Some(_)) => message('I', "Extracted filesystem successfully"),
    }
    if good && args.ratio && args.level >= OUTCOME {
        let ratio = ratio(engine, &start, directory.is_some())?;
        message('I', format_args!("Compression ratio: {ratio}(%)"));
    }
    Ok(good)
}

fn refuse_without_directory(args: &FsckArgs, directory: Option<&Path>) -> anyhow::Result<()> {
    let preserves = args.preserve.owner.or(args.preserve.permissions).is_some();
    let needs = match directory {
        Some(path) if path == Path::new("/") && !args.force => {
            "--extract=/ must be used with --force"
        }
        Some(path) if path.as_os_str().is_empty() => "--extract= needs a directory",
        None if args.force => "--force must be used with --extract=DIR",
        None if args.overwrite => "--overwrite must be used with --extract=DIR",
        None if preserves => "--[no-]preserve[-owner/-perms] must be used with --extract=DIR",
        _ => return Ok(()),
    };
    Err(Usage(needs.to_owned()).into())
}

/// Reports faults as errors, and oddities as warnings.
fn check(args: &FsckArgs, engine: &Engine, start: &Arc<Inode>) -> anyhow::Result<bool> {
    let content = if args.xattr_inode_digest {
        let name = engine.image().digest_xattr();
        Content::Digest(name.context("the image has no digests in extended attributes")?)
    } else if args.extract.is_some() {
        Content::Read
    } else {
        Content::Map
    };
    let threads: Option<NonZero<usize>> = None;
    let report = check::check(engine, start, threads, &content, None)?;
    for fault in &report.faults {
        message('E', format_args!("{}: {}", fault.path, fault.error));
    }
    for oddity in report.oddities.iter().filter(|_| args.level >= WARNINGS) {
        message('W', format_args!("{}: {}", oddity.path, oddity.error));
    }
    Ok(report.faults.is_empty())
}

/// Extracts to `place`: the contents of a directory go into it, and any other start is extracted as
/// `place` itself.
fn extract(
    args: &FsckArgs,
    engine: &Arc<Engine>,
    start: &Arc<Inode>,
    place: &Path,
) -> anyhow::Result<bool> {
    if args.xattr_inode_digest && !check(args, engine, start)? {
        return Ok(false);
    }
    let (directory, name) = match start.file_type() {
        FileType::Directory => (place.to_owned(), Vec::new()),
        _ => {
            let name = place.file_name().context("--extract needs a name")?;
            (directory_of(place), name.as_encoded_bytes().to_vec())
        }
    };
    let replace = match args.overwrite {
        true => Replace::Everything,
        false => Replace::Files,
    };
    let job = extract::job(engine.clone(), start.clone(), name, None);
    let report = |line: &str| message('E', line);
    let summary = extract::to_directory(&job, &directory, replace, keep(args), report)?;
    Ok(summary.is_whole())
}

fn directory_of(path: &Path) -> PathBuf {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_owned()
}

fn keep(args: &FsckArgs) -> Keep {
    let root = geteuid().is_root();
    let mask = umask(Mode::empty());
    umask(mask);
    Keep {
        owner: args.preserve.owner.unwrap_or(root),
        permissions: match args.preserve.permissions.unwrap_or(root) {
            true => Keep::ALL.permissions,
            false => Keep::ALL.permissions & !(mask.as_raw_mode() as u16),
        },
        xattrs: args.xattrs,
    }
}

/// Stored blocks as a percentage of the blocks of content; the last block of each inode counts as
/// full. Counts every name or, for an extraction, every inode once.
fn ratio(engine: &Engine, start: &Arc<Inode>, extracted: bool) -> anyhow::Result<String> {
    let superblock = engine.image().superblock();
    let block = u64::from(superblock.block_size);
    let (mut stored, mut content) = (0, 0);
    if let Some(nid) = superblock.packed_nid.filter(|_| start.nid == engine.root()) {
        stored += stored_bytes(engine, &*engine.inode(nid)?).div_ceil(block);
    }
    let entries = tree::walk(engine, start).flatten();
    for entry in entries.filter(|entry| entry.first || !extracted) {
        stored += stored_bytes(engine, &entry.inode).div_ceil(block);
        content += entry.inode.size.div_ceil(block);
    }
    Ok(percent(stored, content))
}

/// The bytes stored for an inode. As in erofs-utils 1.9.4, holes in uncompressed data count too,
/// and a fragment after a pcluster counts as much as that pcluster.
fn stored_bytes(engine: &Engine, inode: &Inode) -> u64 {
    if !inode.is_compressed() {
        return inode.size;
    }
    let (mut sum, mut last) = (0, 0);
    // In a valid image, every extent can be mapped.
    for extent in each_extent(engine, inode).flatten() {
        match &extent.kind {
            ExtentKind::Compressed(pcluster) => last = u64::from(pcluster.length),
            ExtentKind::Fragment { .. } => {}
            _ => last = 0,
        }
        sum += last;
    }
    sum
}
