//! Pclusters that are holes, in images with all index forms and codecs. `erofs_oracles::holes`
//! makes them from good images, whose other bytes stay the same.

mod tools;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use erofs_engine::erofs_format::{Coding, ExtentKind, FileType, Inode};
use erofs_engine::{Engine, EngineOptions};
use erofs_oracles::holes::{Hole, How, holes};

use crate::common::{TestImage, fixtures, good_images, image_sets};

/// Number of files per image that receive holes, including the largest.
const FILES: usize = 6;
const LARGEST: u64 = 4 << 20;

/// A file whose pclusters became holes.
pub struct Punched {
    pub path: Vec<u8>,
    pub how: How,
    pub holes: Vec<Range<u64>>,
    /// The content with the holes.
    pub content: Vec<u8>,
}

fn content(engine: &Engine, inode: &Inode) -> Vec<u8> {
    let mut bytes = vec![0xaa; inode.size as usize];
    let read = engine.read_at(&engine.waiting(), inode, 0, &mut bytes);
    assert_eq!(read.expect("a good file"), bytes.len());
    bytes
}

/// The files of an image whose pclusters are in an index.
fn files(engine: &Engine) -> Vec<(Vec<u8>, Arc<Inode>)> {
    let (mut found, mut waiting) = (Vec::new(), vec![(Vec::new(), engine.root())]);
    while let Some((path, nid)) = waiting.pop() {
        let inode = engine.inode(nid).expect("a good inode");
        if inode.file_type() == FileType::Directory {
            let mut each = |name: &[u8], nid, _, _| {
                if !matches!(name, b"." | b"..") {
                    waiting.push(([&path[..], b"/", name].concat(), nid));
                }
                std::ops::ControlFlow::Continue(())
            };
            engine
                .read_dir(&inode, 0, &mut each)
                .expect("a good directory");
        } else if inode.file_type() == FileType::Regular && inode.is_compressed() {
            found.push((path, inode));
        }
    }
    found.retain(|(_, inode)| inode.size <= LARGEST);
    found.sort_by_key(|(_, inode)| std::cmp::Reverse(inode.size));
    found.dedup_by_key(|(_, inode)| inode.nid);
    found
}

/// Selects the last hole and, if there are enough, one in the middle, so that other pclusters
/// remain.
fn some(all: Vec<Hole>) -> Vec<Hole> {
    let (last, middle) = (all.len().saturating_sub(1), all.len() / 2);
    let is_chosen = |number| number == last || number == middle && last >= 3;
    let all = all.into_iter().enumerate();
    all.filter(|(number, _)| is_chosen(*number))
        .map(|(_, hole)| hole)
        .collect()
}

/// Punches holes of the kind `how` into a copy of the image, which is written to `place`, and
/// returns the changed files.
pub fn punch(image: &TestImage, how: How, place: &Path) -> Vec<Punched> {
    let engine = Engine::open(&image.path, &image.options()).expect("a good image");
    let mut bytes = std::fs::read(&image.path).expect("an image");
    let mut punched = Vec::new();
    for (path, inode) in files(&engine) {
        let mut all = holes(&bytes[image.offset as usize..], inode.nid);
        all.retain(|hole| hole.how == how);
        let all = some(all);
        if all.is_empty() || punched.len() == FILES {
            continue;
        }
        let mut content = content(&engine, &inode);
        for hole in &all {
            // Searches for the holes again after each punch, because one pack of an index may
            // contain entries of two pclusters.
            let now = holes(&bytes[image.offset as usize..], inode.nid);
            let now = now
                .iter()
                .find(|now| now.how == how && now.range == hole.range);
            now.expect("as before")
                .punch(&mut bytes[image.offset as usize..]);
            content[hole.range.start as usize..hole.range.end as usize].fill(0);
        }
        let holes = all.into_iter().map(|hole| hole.range).collect();
        punched.push(Punched {
            path,
            how,
            holes,
            content,
        });
    }
    std::fs::write(place, bytes).expect("room");
    punched
}

fn check(engine: &Engine, file: &Punched) {
    let inode = engine.resolve(&file.path, false).expect("a file");
    let name = format!(
        "{} {:?} {}",
        engine.name(),
        file.how,
        file.path.escape_ascii()
    );
    let found = content(engine, &inode);
    let wrong = (0..found.len()).find(|&at| found[at] != file.content[at]);
    assert_eq!(wrong, None, "{name}: other bytes beside {:?}", file.holes);
    if file.how != How::Record {
        assert_eq!(
            engine.has_holes(&inode, &mut { u64::MAX }),
            Some(true),
            "{name}"
        );
    }
    for hole in &file.holes {
        // Reads that begin or end inside the hole return zeros there, not bytes decoded for
        // anything else.
        let (around, middle) = (hole.start.saturating_sub(100), (hole.start + hole.end) / 2);
        for (begin, end) in [
            (around, middle),
            (middle, hole.end + 100),
            (middle, middle + 1),
        ] {
            let end = end.min(inode.size);
            let mut bytes = vec![0xaa; (end - begin) as usize];
            engine
                .read_at(&engine.waiting(), &inode, begin, &mut bytes)
                .expect("a part");
            assert!(
                bytes == file.content[begin as usize..end as usize],
                "{name}: {begin}"
            );
        }
        let before = engine.stats().decoded_bytes;
        for at in [hole.start, middle, hole.end - 1] {
            let mut byte = [0xaa];
            let read = engine.read_at(&engine.waiting(), &inode, at, &mut byte);
            assert_eq!((read.expect("a byte"), byte), (1, [0]), "{name} at {at}");
        }
        assert_eq!(
            engine.stats().decoded_bytes,
            before,
            "{name}: a hole was decoded"
        );
        for at in [hole.start, middle, hole.end - 1] {
            let extent = engine
                .extent(&inode, at)
                .expect("an extent")
                .expect("an extent");
            assert_eq!(extent.kind, ExtentKind::Hole, "{name} at {at}");
            let range = extent.logical..extent.end();
            assert!(
                range.start >= hole.start && range.end == hole.end,
                "{name}: {range:?}"
            );
            assert_eq!(
                engine
                    .seek(&engine.waiting(), &inode, at, true)
                    .expect("a hole"),
                Some(at),
                "{name}"
            );
        }
        let data = engine
            .seek(&engine.waiting(), &inode, hole.start, false)
            .expect("data");
        assert!(data.is_none_or(|data| data >= hole.end), "{name}: {data:?}");
        let found = engine
            .seek(&engine.waiting(), &inode, around, true)
            .expect("a hole");
        assert!(
            found.is_some_and(|found| found <= hole.start),
            "{name}: {found:?}"
        );
    }
}

/// The codecs of the pclusters of a file.
fn codings(engine: &Engine, path: &[u8]) -> BTreeSet<String> {
    let inode = engine.resolve(path, false).expect("a file");
    let (mut found, mut at) = (BTreeSet::new(), 0);
    while at < inode.size {
        let extent = engine
            .extent(&inode, at)
            .expect("an extent")
            .expect("an extent");
        at = extent.end();
        found.insert(match extent.kind {
            ExtentKind::Compressed(pcluster) if pcluster.inline => "inline".to_owned(),
            ExtentKind::Compressed(pcluster) => match pcluster.coding {
                Coding::Compressed(algorithm) => algorithm.name().to_owned(),
                other => format!("{other:?}"),
            },
            ExtentKind::Fragment { .. } => "fragment".to_owned(),
            other => format!("{other:?}")
                .split([' ', '{'])
                .next()
                .unwrap_or_default()
                .to_owned(),
        });
    }
    found
}

/// The codecs of the pclusters beside the holes, for each kind of hole.
type Seen = BTreeMap<How, BTreeSet<String>>;

fn check_images(images: Vec<TestImage>) -> Seen {
    let place = tempfile::tempdir().expect("a directory");
    let punched_image = place.path().join("punched.erofs");
    let mut seen = Seen::new();
    for image in images {
        for how in [How::Bit, How::Count, How::CompactCount, How::Record] {
            let punched = punch(&image, how, &punched_image);
            if punched.is_empty() {
                continue;
            }
            for cache_bytes in [0, 8 << 20] {
                let options = EngineOptions {
                    cache_bytes,
                    ..image.options()
                };
                let engine = Engine::open(&punched_image, &options).expect("it opens");
                for file in &punched {
                    check(&engine, file);
                    seen.entry(how)
                        .or_default()
                        .extend(codings(&engine, &file.path));
                }
            }
        }
    }
    println!("{seen:?}");
    seen
}

/// Checks that, for each codec in `least`, a pcluster of that codec was beside the holes.
fn assert_beside(seen: &Seen, how: How, least: &[&str]) {
    let beside = seen.get(&how).cloned().unwrap_or_default();
    let missing: Vec<_> = least
        .iter()
        .filter(|kind| !beside.contains(**kind))
        .collect();
    assert!(missing.is_empty(), "{how:?} was not beside {missing:?}");
}

#[test]
fn holes_of_every_index_are_zeros_and_all_else_is_as_it_was() {
    let seen = check_images(good_images(&fixtures()));
    assert_beside(&seen, How::Bit, &["lz4", "deflate", "Shifted"]);
    assert_beside(&seen, How::Count, &["lz4"]);
    assert_beside(&seen, How::CompactCount, &["lz4"]);
    assert_beside(&seen, How::Record, &["zstd"]);
}

#[test]
fn holes_beside_every_codec_are_zeros_and_all_else_is_as_it_was() {
    let sets = image_sets();
    let Some(shared) = sets.get(1) else {
        println!("skipped: an image of every codec is only in the large set of images");
        return;
    };
    let seen = check_images(good_images(shared));
    let kinds = ["lz4", "deflate", "Shifted", "Interlaced", "fragment"];
    assert_beside(&seen, How::Bit, &kinds);
    let kinds = ["lz4", "lzma", "deflate", "zstd", "inline", "fragment"];
    assert_beside(&seen, How::CompactCount, &kinds);
    assert_beside(&seen, How::Record, &["lz4", "deflate", "zstd", "fragment"]);
}
