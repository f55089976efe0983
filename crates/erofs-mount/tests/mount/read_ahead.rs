//! Small files that are read one after another arrive without a request for each of them, and
//! directories that are listed one after another are listed ahead.

use std::path::PathBuf;

use serde_json::Value;

use super::*;
use crate::built::BuiltImage;

pub(super) const TESTS: &[Test] = tests![
    files_that_are_read_in_order_come_without_requests,
    files_that_are_read_in_no_order_are_left_alone,
    without_read_ahead_every_file_is_asked_for,
    a_walk_has_directories_listed_ahead_and_leaves_the_mount_free,
    a_walk_that_reads_files_has_none_listed_ahead,
    files_of_small_directories_come_without_requests,
];

const FILES: usize = 400;

/// The images include packed files, which share pclusters.
const IMAGES: [&[&str]; 3] = [
    &["-zlz4hc", "-C65536"],
    &["-zlz4hc", "-Eall-fragments"],
    &[],
];

fn each_mount(options: &str, mut work: impl FnMut(&BuiltImage, &Place, &[PathBuf])) {
    for (number, image) in IMAGES.iter().enumerate() {
        let name = format!("small{number}");
        let Some(built) = BuiltImage::of_small_files(&name, image, FILES) else {
            continue;
        };
        for transport in ["io_uring=off", "io_uring=on"] {
            let place = Place::new();
            let options = format!("{transport}{options}");
            if let Err(error) = mount(&request(&built.image(), &place, &options)) {
                assert!(error.to_string().contains("io_uring"), "{error}");
                println!("skipped: {error}");
                continue;
            }
            let listing = fs::read_dir(place.path.join("data")).unwrap();
            let files: Vec<_> = listing.map(|entry| entry.unwrap().path()).collect();
            assert_eq!(files.len(), FILES);
            work(&built, &place, &files);
        }
    }
}

fn reads(place: &Place) -> u64 {
    let counters = stat(&place.path).unwrap();
    counters["fuse"]["by_kind"]["read"].as_u64().unwrap()
}

pub(super) fn counters(place: &Place) -> Value {
    stat(&place.path).unwrap()["read_ahead"].take()
}

/// Waits until the storing thread is idle: a reader that is faster than this thread makes its own
/// requests.
fn wait_until_idle(place: &Place) {
    let mut before = Value::Null;
    soon("the end of storing", || {
        let now = counters(place);
        now == std::mem::replace(&mut before, now.clone())
    });
}

fn compare(built: &BuiltImage, file: &Path) {
    let original = built.tree().join("data").join(file.file_name().unwrap());
    assert!(
        fs::read(file).unwrap() == fs::read(original).unwrap(),
        "{file:?}"
    );
}

fn files_that_are_read_in_order_come_without_requests() {
    each_mount("", |built, place, files| {
        for (number, file) in files.iter().enumerate() {
            compare(built, file);
            if number % 8 == 7 {
                wait_until_idle(place);
            }
        }
        assert!(reads(place) < FILES as u64 / 2, "{} reads", reads(place));
        let counters = counters(place);
        let count = |name: &str| counters[name].as_u64().unwrap();
        assert!(count("used_bytes") > 0, "{counters}");
        assert!(
            count("prefetched_bytes") >= count("used_bytes"),
            "{counters}"
        );
    });
}

fn files_that_are_read_in_no_order_are_left_alone() {
    each_mount("", |built, place, files| {
        for number in 0..FILES {
            compare(built, &files[number * 191 % FILES]);
        }
        assert!(reads(place) >= FILES as u64, "{} reads", reads(place));
        assert_eq!(counters(place)["prefetched_bytes"], 0);
    });
}

fn without_read_ahead_every_file_is_asked_for() {
    each_mount(",read_ahead_kb=0", |built, place, files| {
        files.iter().for_each(|file| compare(built, file));
        assert!(reads(place) >= FILES as u64, "{} reads", reads(place));
        assert_eq!(counters(place), Value::Null);
    });
}

/// All paths below a directory, depth first; with `reads`, files are read on the way.
fn walk(directory: &Path, backwards: bool, reads: bool, found: &mut Vec<PathBuf>) {
    let listing = fs::read_dir(directory).unwrap();
    let mut paths: Vec<_> = listing.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    if backwards {
        paths.reverse();
    }
    for path in paths {
        found.push(path.clone());
        if path.symlink_metadata().unwrap().is_dir() {
            walk(&path, backwards, reads, found);
        } else if reads {
            assert_eq!(fs::read(&path).unwrap(), [b'x'; 7]);
        }
    }
}

/// Paths below a directory, relative to it and in order.
fn walked(root: &Path, backwards: bool, reads: bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(root, backwards, reads, &mut found);
    let relative = found.iter().map(|path| path.strip_prefix(root).unwrap());
    let mut relative: Vec<_> = relative.map(Path::to_owned).collect();
    relative.sort();
    relative
}

const DIRECTORIES: usize = 400;

/// The number of directories listed ahead of a walk; empty if listing ahead is impossible.
fn ahead_of_a_walk(backwards: bool, reads: bool) -> Vec<u64> {
    let Some(built) = BuiltImage::of_directories("directories", DIRECTORIES) else {
        return Vec::new();
    };
    let one_cpu = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
    if one_cpu || !rustix::process::getuid().is_root() {
        println!("skipped: directories are listed ahead for root, by other CPUs");
        return Vec::new();
    }
    let mut counts = Vec::new();
    for transport in ["io_uring=off,nohipri", "io_uring=on,nohipri"] {
        let place = Place::new();
        if let Err(error) = mount(&request(&built.image(), &place, transport)) {
            assert!(error.to_string().contains("io_uring"), "{error}");
            println!("skipped: {error}");
            continue;
        }
        let found = walked(&place.path, backwards, reads);
        assert_eq!(found, walked(&built.tree(), false, false));
        counts.push(counters(&place)["directories"].as_u64().unwrap());
        // Listing ahead does not keep the mount busy.
        erofs_mount::umount(&place.path, false).unwrap();
    }
    counts
}

fn a_walk_has_directories_listed_ahead_and_leaves_the_mount_free() {
    for backwards in [false, true] {
        for count in ahead_of_a_walk(backwards, false) {
            assert!(count <= DIRECTORIES as u64, "{backwards}: {count}");
            if count == 0 {
                println!("skipped: other programs keep the CPUs busy");
            }
        }
    }
}

fn a_walk_that_reads_files_has_none_listed_ahead() {
    for count in ahead_of_a_walk(false, true) {
        assert!(count < 100, "{count}");
    }
}

/// The kernel knows the files of a listing once the reader has taken the reply, not when the reply
/// is sent.
fn files_of_small_directories_come_without_requests() {
    let Some(built) = BuiltImage::of_directories("small-directories", DIRECTORIES) else {
        return;
    };
    for transport in ["io_uring=off", "io_uring=on"] {
        let place = Place::new();
        if let Err(error) = mount(&request(&built.image(), &place, transport)) {
            assert!(error.to_string().contains("io_uring"), "{error}");
            println!("skipped: {error}");
            continue;
        }
        walked(&place.path, false, true);
        let counters = counters(&place);
        let refused = counters["refused_files"].as_u64().unwrap();
        assert!(refused < DIRECTORIES as u64 / 2, "{counters}");
        println!("{transport}: {} reads, {counters}", reads(&place));
    }
}
