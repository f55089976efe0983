//! Faults of the image: what the log and the counters say, and that neither is in the way.

use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;

use erofs_fuse::{stat, umount};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use serde_json::json;

use crate::place::{Place, fixtures};
use crate::{Test, mounted_or_skipped, read_tree, request, soon};

pub const TESTS: &[Test] = tests![
    a_fault_is_logged_once_with_its_place_and_counted,
    a_listing_that_leaves_entries_out_fails_at_its_end,
    a_name_that_may_be_a_broken_one_is_never_absent,
    a_log_that_is_gone_drops_no_request,
    a_log_that_cannot_be_opened_is_an_error_of_the_mount,
];

/// Its first pcluster of `text` is garbage.
const IMAGE: &str = "bad/lz4-garbage";

/// A path that nothing is at; removed at the end.
struct Log(PathBuf);

impl Log {
    fn new(name: &str) -> Self {
        let name = format!("erofs-fuse-faults-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn option(&self) -> String {
        format!("log={}", self.0.display())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// `entry-05` of this directory is `../.././x`.
const BROKEN_ENTRY: &str = "bad/dirent-name-slash";
const DIRECTORY: &str = "dir/sub";
const EUCLEAN: Option<i32> = Some(117);

fn a_listing_that_leaves_entries_out_fails_at_its_end() {
    for options in ["io_uring=off", "io_uring=on,restart=off"] {
        let Some(place) = mounted_or_skipped(BROKEN_ENTRY, options) else {
            continue;
        };
        // Again and again: the kernel must not take it for complete.
        for _ in 0..3 {
            let (mut names, mut errors) = (Vec::new(), Vec::new());
            for entry in fs::read_dir(place.path.join(DIRECTORY)).unwrap() {
                match entry {
                    Ok(entry) => names.push(entry.file_name()),
                    Err(error) => errors.push(error.raw_os_error()),
                }
            }
            assert_eq!(errors, [EUCLEAN], "{options}");
            let has = |name: &str| names.iter().any(|found| found == name);
            assert!(
                has("entry-04") && has("entry-06") && has("entry-30"),
                "{names:?}"
            );
        }
        umount(&place.path, false).unwrap();
    }
}

fn a_name_that_may_be_a_broken_one_is_never_absent() {
    let place = mounted_or_skipped(BROKEN_ENTRY, "io_uring=off").unwrap();
    let errno = |name: &str| {
        let path = place.path.join(DIRECTORY).join(name);
        fs::metadata(path)
            .err()
            .and_then(|error| error.raw_os_error())
    };
    for _ in 0..2 {
        assert_eq!(errno("entry-05"), EUCLEAN);
        assert_eq!(errno("entry-06"), None);
        assert_eq!(errno("entry-20x"), Some(2), "its neighbours are sound");
    }
    umount(&place.path, false).unwrap();
}

/// The kernel keeps no page of a read that failed, so each of these asks again.
fn read_the_broken_file(place: &Place) {
    let mut file = File::open(place.path.join("text")).unwrap();
    let error = file.read(&mut [0; 16]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
}

fn a_fault_is_logged_once_with_its_place_and_counted() {
    for transport in ["io_uring=off", "io_uring=on"] {
        let log = Log::new("once");
        let options = format!("{transport},{}", log.option());
        let Some(place) = mounted_or_skipped(IMAGE, &options) else {
            continue;
        };
        (0..5).for_each(|_| read_the_broken_file(&place));
        soon("the line", || {
            stat(&place.path).unwrap()["faults"]["logged"] == json!(1)
        });
        let faults = stat(&place.path).unwrap()["faults"].clone();
        let last = &faults["last"][0];
        assert_eq!(faults["logged_to"], json!(log.0.to_str().unwrap()));
        assert_eq!(
            (&last["path"], &last["codec"]),
            (&json!("/text"), &json!("lz4"))
        );
        assert!(last["address"].as_u64().unwrap() > 0 && last["nid"].as_u64().unwrap() > 0);
        let count = faults["count"].as_u64().unwrap();
        assert!(count >= 5 && last["count"] == faults["count"], "{faults}");
        assert!(last["last_s"].as_u64() >= last["first_s"].as_u64());
        let text = fs::read_to_string(&log.0).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        for part in [
            "lz4-garbage.erofs: nid ",
            "physical address",
            "lz4: ",
            "(path /text)",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        umount(&place.path, false).unwrap();
        let end = format!("{count} of 1 kind, 0 of them not logged");
        soon("the last line", || {
            fs::read_to_string(&log.0).unwrap().contains(&end)
        });
    }
}

fn a_log_that_is_gone_drops_no_request() {
    for transport in ["io_uring=off", "io_uring=on"] {
        let log = Log::new("pipe");
        mknodat(CWD, &log.0, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let reader = rustix::fs::open(&log.0, flags, Mode::empty()).unwrap();
        let options = format!("{transport},{}", log.option());
        let Some(place) = mounted_or_skipped(IMAGE, &options) else {
            continue;
        };
        drop(reader);
        (0..5).for_each(|_| read_the_broken_file(&place));
        soon("the log's refusal", || {
            stat(&place.path).unwrap()["faults"]["not_logged"] == json!(1)
        });
        fs::read_dir(&place.path).unwrap().for_each(|entry| {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                read_tree(&entry.path()).unwrap();
            }
        });
        umount(&place.path, false).unwrap();
    }
}

fn a_log_that_cannot_be_opened_is_an_error_of_the_mount() {
    let place = Place::new();
    let image = fixtures().join(format!("{IMAGE}.erofs"));
    let outcome = erofs_fuse::mount(&request(&image, &place, "log=/nowhere/log"));
    let line = outcome.unwrap_err().to_string();
    assert!(line.contains("log=/nowhere/log: No such file"), "{line}");
    assert!(place.mount_line().is_none());
}
