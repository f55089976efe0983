//! Small files that are read one after another come without a request for each of them.

use std::path::PathBuf;

use serde_json::Value;

use super::*;
use crate::built::BuiltImage;

pub(super) const TESTS: &[Test] = tests![
    files_that_are_read_in_order_come_without_requests,
    files_that_are_read_in_no_order_are_left_alone,
    without_read_ahead_every_file_is_asked_for,
];

const FILES: usize = 400;

/// Packed files are decoded of the pclusters that they share.
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

fn counters(place: &Place) -> Value {
    stat(&place.path).unwrap()["read_ahead"].take()
}

/// The thread that stores may be slower than a reader, which then asks itself.
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
            if number % 16 == 15 {
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
