//! SEEK_HOLE and SEEK_DATA.

use std::fs::File;
use std::ops::{ControlFlow, Range};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use erofs_engine::{Engine, EngineOptions};
use erofs_mount::{mount, stat};
use erofs_oracles::holes::{How, holes};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::built::BuiltImage;
use crate::place::{Place, fixtures};
use crate::{Test, request};

pub const TESTS: &[Test] = tests![
    chunks_are_asked_for_holes_each_time,
    an_image_without_holes_is_asked_until_it_was_scanned,
    pclusters_that_are_holes_are_found_and_stay_holes_in_copies,
];

/// Longer than a scan of a small image takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn lseeks(place: &Path) -> u64 {
    let stat = stat(place).unwrap();
    stat["fuse"]["by_kind"]["lseek"].as_u64().unwrap_or(0)
}

fn all_is_data(place: &Path) {
    for (name, size) in [("file", 8), ("exec", 10)] {
        let file = File::open(place.join(name)).unwrap();
        let found = [SeekFrom::Data(1), SeekFrom::Hole(1)].map(|from| seek(&file, from));
        assert_eq!(found, [Ok(1), Ok(size)], "{name}");
    }
}

fn chunks_are_asked_for_holes_each_time() {
    let Some(built) = BuiltImage::new("holes", &["--chunksize=4096"], 0) else {
        return;
    };
    let place = Place::new();
    mount(&request(&built.image(), &place, "")).unwrap();
    all_is_data(&place.path);
    assert_eq!(lseeks(&place.path), 4);
}

fn an_image_without_holes_is_asked_until_it_was_scanned() {
    for options in [
        &[][..],
        &["-zlz4"],
        &["-zlz4", "-C65536", "-Elegacy-compress"],
    ] {
        let Some(built) = BuiltImage::new("no-holes", options, 20) else {
            return;
        };
        let place = Place::new();
        mount(&request(&built.image(), &place, "")).unwrap();
        let begin = Instant::now();
        let mut before = u64::MAX;
        while before != lseeks(&place.path) {
            assert!(begin.elapsed() < PATIENCE, "{options:?}: {before} requests");
            before = lseeks(&place.path);
            all_is_data(&place.path);
            sleep(Duration::from_millis(20));
        }
        assert!(before > 0, "{options:?}");
    }
}

/// A file with a hole, in an image below `place`.
struct Punched {
    image: PathBuf,
    name: String,
    hole: Range<u64>,
    content: Vec<u8>,
}

/// Turns a pcluster of more than 64 KiB into a hole, in the first file of the root directory that
/// has such a pcluster.
fn punched(name: &str, how: How, place: &Path) -> Punched {
    let from = fixtures().join(format!("{name}.erofs"));
    let mut bytes = std::fs::read(&from).unwrap();
    let engine = Engine::open(&from, &EngineOptions::default()).unwrap();
    let mut files = Vec::new();
    let mut waiting = vec![(String::new(), engine.root())];
    while let Some((path, nid)) = waiting.pop() {
        let inode = engine.inode(nid).unwrap();
        if inode.mode & 0o170_000 != 0o040_000 {
            files.push((path, inode));
            continue;
        }
        let mut each = |name: &[u8], nid, _, _| {
            if !matches!(name, b"." | b"..") {
                waiting.push((format!("{path}/{}", name.escape_ascii()), nid));
            }
            ControlFlow::Continue(())
        };
        engine.read_dir(&inode, 0, &mut each).unwrap();
    }
    let is_long = |range: &Range<u64>| range.end - range.start > 64 << 10;
    let of = |nid| {
        holes(&bytes, nid)
            .into_iter()
            .find(|hole| hole.how == how && is_long(&hole.range))
    };
    let found = files
        .into_iter()
        .find_map(|(name, inode)| Some((of(inode.nid)?, name, inode)));
    let (hole, name, inode) = found.expect("a long pcluster");
    hole.punch(&mut bytes);
    let image = place.join(format!("{how:?}.erofs"));
    std::fs::write(&image, bytes).unwrap();
    let mut content = vec![0; inode.size as usize];
    engine
        .read_at(&engine.waiting(), &inode, 0, &mut content)
        .unwrap();
    let hole = hole.range;
    content[hole.start as usize..hole.end as usize].fill(0);
    let name = name.trim_start_matches('/').to_owned();
    Punched {
        image,
        name,
        hole,
        content,
    }
}

/// Checks that a copy has the right content, and no blocks for the hole.
fn is_copy(copy: &Path, punched: &Punched) {
    assert!(std::fs::read(copy).unwrap() == punched.content, "{copy:?}");
    let allocated = copy.metadata().unwrap().blocks() * 512;
    let hole = punched.hole.end / 4096 - punched.hole.start.div_ceil(4096);
    let most = (punched.content.len() as u64).next_multiple_of(4096) - hole * 4096;
    assert!(allocated <= most, "{copy:?}: {allocated} of {most} bytes");
}

fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

fn pclusters_that_are_holes_are_found_and_stay_holes_in_copies() {
    let scratch = tempfile::tempdir().unwrap();
    for (name, how) in [
        ("lz4-full-index-64k", How::Bit),
        ("lz4-full-index-64k", How::Count),
        ("lz4-64k", How::CompactCount),
    ] {
        let punched = punched(name, how, scratch.path());
        let (place, size) = (Place::new(), punched.content.len() as u64);
        mount(&request(&punched.image, &place, "")).unwrap();
        let path = place.path.join(&punched.name);
        let file = File::open(&path).unwrap();
        let hole = punched.hole.clone();
        // Ask more often than needed to trigger the scan of the image.
        for _ in 0..100 {
            for at in [hole.start, hole.start + 5, hole.end - 1] {
                assert_eq!(seek(&file, SeekFrom::Hole(at)), Ok(at), "{how:?}");
                let data = seek(&file, SeekFrom::Data(at));
                let behind = if hole.end == size {
                    Err(Errno::NXIO)
                } else {
                    Ok(hole.end)
                };
                assert_eq!(data, behind, "{how:?}");
            }
        }
        if hole.start > 0 {
            assert_eq!(seek(&file, SeekFrom::Hole(0)), Ok(hole.start), "{how:?}");
        }
        assert!(std::fs::read(&path).unwrap() == punched.content, "{how:?}");
        let copies = scratch.path().join(format!("{how:?}"));
        std::fs::create_dir(&copies).unwrap();
        let copy = copies.join("copy");
        succeeds(Command::new("cp").arg(&path).arg(&copy));
        is_copy(&copy, &punched);
        let archive = copies.join("tar");
        let tar = |action: &str| {
            let mut command = Command::new("tar");
            command.args([action]).arg(&archive);
            command
        };
        succeeds(tar("-cSf").arg("-C").arg(&place.path).arg(&punched.name));
        assert!(
            archive.metadata().unwrap().len() < size.next_multiple_of(10240),
            "{how:?}"
        );
        succeeds(tar("-xSf").arg("-C").arg(&copies));
        is_copy(&copies.join(&punched.name), &punched);
    }
}
