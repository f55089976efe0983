//! Measures reads through the library against the bare decoders, and the time to open an image.
//!
//!     cargo bench -p erofs-engine [-- IMAGE...]
//!
//! Reads the biggest file of each image. If no image is given, mkfs.erofs creates one for each
//! codec that it supports, from 200 MB of this machine's libraries, in pclusters of 64 KiB. The
//! contenders take turns, so that other load affects all of them alike. Ratios are medians of the
//! rounds. The bare decoders get the stored bytes from memory, while the library reads the image.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use erofs_codecs::{Codec, Decoder};
use erofs_engine::erofs_format::{Coding, ExtentKind, FileType, Inode};
use erofs_engine::{Engine, EngineOptions, ReadContext, WorkersMode, codec, decoder_settings};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const CONTENT: usize = 200 << 20;
const REQUEST: usize = 1 << 20;
const ROUNDS: usize = 9;
const OPENINGS: usize = 101;
const CODECS: [&str; 4] = ["lz4hc", "zstd", "deflate", "lzma"];

fn main() -> Result<()> {
    let arguments = std::env::args().skip(1);
    let mut images: Vec<PathBuf> = arguments
        .filter(|argument| !argument.starts_with('-'))
        .map(PathBuf::from)
        .collect();
    if images.is_empty() {
        images = made()?;
    }
    for image in &images {
        println!("{}", image.display());
        opening(image)?;
        reading(image)?;
    }
    Ok(())
}

/// One image for each codec that mkfs.erofs supports, kept for the next run.
fn made() -> Result<Vec<PathBuf>> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("read-bench");
    let tree = folder.join("tree");
    fs::create_dir_all(&tree)?;
    let file = tree.join("file");
    if fs::metadata(&file).map_or(0, |metadata| metadata.len()) != CONTENT as u64 {
        fill(&file)?;
    }
    let mut images = Vec::new();
    for codec in CODECS {
        let image = folder.join(format!("{codec}.erofs"));
        let made = image.exists()
            || Command::new("mkfs.erofs")
                .args([format!("-z{codec}"), "-C65536".into()])
                .args([&image, &tree])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success());
        if made {
            images.push(image);
        } else {
            let _ = fs::remove_file(&image);
            println!("skipped: {codec}: mkfs.erofs is missing or does not support it");
        }
    }
    Ok(images)
}

/// Fills a file with shared libraries of this machine, one after another.
fn fill(path: &Path) -> Result<()> {
    let mut libraries: Vec<PathBuf> = Vec::new();
    let mut waiting = vec![PathBuf::from("/usr/lib")];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder)?.flatten() {
            let kind = entry.file_type()?;
            let path = entry.path();
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_file() && path.to_string_lossy().contains(".so") {
                libraries.push(path);
            }
        }
    }
    libraries.sort();
    let mut file = File::create(path)?;
    let mut left = CONTENT as u64;
    for library in libraries.iter().cycle().take(100_000) {
        let Ok(source) = File::open(library) else {
            continue;
        };
        left -= std::io::copy(&mut source.take(left), &mut file)?;
        if left == 0 {
            break;
        }
    }
    Ok(file.flush()?)
}

fn opened(image: &Path, workers: WorkersMode) -> Result<Arc<Engine>> {
    let options = EngineOptions {
        workers,
        ..EngineOptions::default()
    };
    Ok(Engine::open(image, &options)?)
}

/// Measures opening an image, alone and together with a read of a small file, with a warm page
/// cache.
fn opening(image: &Path) -> Result<()> {
    let small = found(&*opened(image, WorkersMode::Inline)?, |size| {
        u64::MAX - size
    })?;
    let mut open = Vec::new();
    let mut open_and_read = Vec::new();
    for _ in 0..OPENINGS {
        let start = Instant::now();
        let engine = opened(image, WorkersMode::Inline)?;
        open.push(start.elapsed());
        let inode = engine.inode(small.nid)?;
        let mut out = vec![0; small.size.min(4096) as usize];
        engine.read_at(&engine.waiting(), &inode, 0, &mut out)?;
        open_and_read.push(start.elapsed());
    }
    let before = read_so_far();
    drop(opened(image, WorkersMode::Inline)?);
    let bytes = read_so_far().zip(before).map(|(now, before)| now - before);
    let us = |times: &[Duration]| median(times.iter().map(Duration::as_secs_f64)) * 1e6;
    println!(
        "  opening: {:.0} us, with a read of a file of {} bytes {:.0} us; an image of {} MB, {} bytes read",
        us(&open),
        small.size,
        us(&open_and_read),
        fs::metadata(image)?.len() / 1_000_000,
        bytes.map_or("?".into(), |bytes| bytes.to_string())
    );
    Ok(())
}

/// Bytes that this process has read from files.
fn read_so_far() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("rchar: "))?
        .parse()
        .ok()
}

/// The non-empty regular file with the highest `rank`.
fn found(engine: &Engine, rank: impl Fn(u64) -> u64) -> Result<Arc<Inode>> {
    let mut best: Option<Arc<Inode>> = None;
    let mut waiting = vec![engine.root()];
    while let Some(nid) = waiting.pop() {
        let folder = engine.inode(nid)?;
        let mut entries = Vec::new();
        engine.read_dir(&folder, 0, &mut |name, nid, _, _| {
            if name != b"." && name != b".." {
                entries.push(nid);
            }
            std::ops::ControlFlow::Continue(())
        })?;
        for nid in entries {
            let inode = engine.inode(nid)?;
            match inode.file_type() {
                FileType::Directory => waiting.push(nid),
                FileType::Regular
                    if inode.size > 0
                        && best
                            .as_ref()
                            .is_none_or(|b| rank(b.size) < rank(inode.size)) =>
                {
                    best = Some(inode);
                }
                _ => {}
            }
        }
    }
    best.ok_or_else(|| "no file with content".into())
}

/// A stored piece of the file.
struct Stored {
    codec: Codec,
    bytes: Vec<u8>,
    decoded: usize,
    partial: bool,
}

/// All compressed extents of the file, and the bytes that they decode to.
fn stored(engine: &Engine, inode: &Inode, image: &Path) -> Result<(Vec<Stored>, u64)> {
    let file = File::open(image)?;
    let (mut pieces, mut position, mut decoded) = (Vec::new(), 0, 0);
    while position < inode.size {
        let extent = engine.with_image(&engine.waiting(), inode.nid, |image| {
            image.map(inode, position)
        })?;
        position = extent.end();
        let ExtentKind::Compressed(pcluster) = &extent.kind else {
            continue;
        };
        let Coding::Compressed(algorithm) = pcluster.coding else {
            continue;
        };
        let mut bytes = vec![0; pcluster.length as usize];
        file.read_exact_at(&mut bytes, pcluster.location.physical)?;
        decoded += pcluster.decoded_length;
        pieces.push(Stored {
            codec: codec(algorithm),
            bytes,
            decoded: pcluster.decoded_length as usize,
            partial: pcluster.partial,
        });
    }
    Ok((pieces, decoded))
}

fn reading(image: &Path) -> Result<()> {
    let inline = opened(image, WorkersMode::Inline)?;
    let inode = found(&inline, |size| size)?;
    let (pieces, decoded) = stored(&inline, &inode, image)?;
    if decoded * 10 < inode.size * 9 {
        println!("  reading: the biggest file is not compressed, nothing to compare with");
        return Ok(());
    }
    let helped = opened(image, WorkersMode::PerCpu)?;
    let largest = pieces.iter().map(|piece| piece.decoded).max().unwrap_or(0);
    let context = || {
        (
            Decoder::new(decoder_settings(inline.image().superblock())),
            vec![0; largest],
        )
    };
    let mut contexts = [context(), context()];
    let mut alone = |threads: usize| {
        std::thread::scope(|scope| {
            let shares = pieces.chunks(pieces.len().div_ceil(threads));
            for (share, (decoder, output)) in shares.zip(&mut contexts) {
                scope.spawn(move || decode_all(share, decoder, output));
            }
        });
        decoded
    };
    let names = [
        "decoder alone, 1 thread",
        "decoder alone, 2 threads",
        "1 thread",
        "1 thread, helped",
        "2 threads",
    ];
    let mut times = [const { Vec::new() }; 5];
    for round in 0..=ROUNDS {
        for turn in 0..times.len() {
            let which = (turn + round) % times.len();
            let start = Instant::now();
            let bytes = match which {
                0 => alone(1),
                1 => alone(2),
                2 => read(&inline, &inode, 1)?,
                3 => read(&helped, &inode, 1)?,
                _ => read(&helped, &inode, 2)?,
            };
            if round > 0 {
                times[which].push(bytes as f64 / start.elapsed().as_secs_f64() / 1e6);
            }
        }
    }
    let percent = |which: usize, of: usize, threads: f64| {
        let pairs = times[which].iter().zip(&times[of]);
        median(pairs.map(|(speed, raw): (&f64, &f64)| speed / raw / threads)) * 100.0
    };
    println!(
        "  reading {} MB in requests of 1 MiB: MB/s, median (lowest to highest)",
        inode.size / 1_000_000
    );
    for (which, name) in names.iter().enumerate() {
        let low = times[which].iter().copied().fold(f64::INFINITY, f64::min);
        let high = times[which].iter().copied().fold(0.0, f64::max);
        let share = match which {
            0 => String::new(),
            1 => format!("  {:.1} % of twice one thread", percent(1, 0, 2.0)),
            4 => format!(
                "  {:.1} % of twice one decoder, {:.1} % of two",
                percent(4, 0, 2.0),
                percent(4, 1, 1.0)
            ),
            _ => format!("  {:.1} % of the decoder", percent(which, 0, 1.0)),
        };
        let middle = median(times[which].iter().copied());
        println!("    {name:<24} {middle:>6.0} ({low:.0} to {high:.0}){share}");
    }
    let stats = helped.stats();
    println!(
        "    {} of {} reads were shared with the other CPU",
        stats.shared, stats.reads
    );
    Ok(())
}

fn decode_all(pieces: &[Stored], decoder: &mut Decoder, output: &mut [u8]) {
    for piece in pieces {
        let out = &mut output[..piece.decoded];
        decoder
            .decode(piece.codec, &piece.bytes, black_box(out), piece.partial)
            .expect("a sound image");
    }
}

/// Reads the whole file with `threads` threads, each of which reads one part.
fn read(engine: &Engine, inode: &Inode, threads: u64) -> Result<u64> {
    let share = inode
        .size
        .div_ceil(threads)
        .next_multiple_of(REQUEST as u64);
    let one = |thread: u64| -> std::result::Result<u64, erofs_engine::Error> {
        let mut buffer = vec![0; REQUEST];
        let (mut position, end) = (thread * share, ((thread + 1) * share).min(inode.size));
        while position < end {
            let length = (end - position).min(REQUEST as u64) as usize;
            let context = ReadContext::Reader { readahead: false };
            engine.read_at(
                &engine.request(context),
                inode,
                position,
                black_box(&mut buffer[..length]),
            )?;
            position += length as u64;
        }
        Ok(end.saturating_sub(thread * share))
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || one(thread)))
            .collect();
        let mut bytes = 0;
        for thread in running {
            bytes += thread.join().expect("no panic")?;
        }
        Ok(bytes)
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
