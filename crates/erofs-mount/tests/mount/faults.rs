//! Faults of the image appear in the log and in the counters, and do not disturb the mount.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use erofs_mount::{mount, stat, umount};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::place::{Place, fixtures, image};
use crate::{Test, kill, mounted_or_skipped, pid_of, read_tree, request, soon};

pub const TESTS: &[Test] = tests![
    a_fault_is_logged_once_with_its_place_and_counted,
    a_listing_that_leaves_entries_out_fails_at_its_end,
    a_name_that_may_be_a_broken_one_is_never_absent,
    a_log_that_is_gone_drops_no_request,
    a_log_that_cannot_be_opened_is_an_error_of_the_mount,
    an_image_that_is_overwritten_under_its_mount_is_said_to_have_changed,
    a_successor_of_a_dead_server_knows_what_the_image_was,
    an_image_that_only_has_a_new_name_is_not_said_to_have_changed,
    stat_says_that_an_image_was_overwritten_before_any_read_fails,
];

/// An image in which the first pcluster of `text` is garbage.
const IMAGE: &str = "bad/lz4-garbage";

/// An unused path; removed at the end.
struct Log(PathBuf);

impl Log {
    fn new(name: &str) -> Self {
        let name = format!("erofs-mount-faults-{name}-{}", std::process::id());
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

/// An image in which `entry-05` of [`DIRECTORY`] is renamed to `../.././x`.
const BROKEN_ENTRY: &str = "bad/dirent-name-slash";
const DIRECTORY: &str = "dir/sub";
const EUCLEAN: Option<i32> = Some(117);

fn a_listing_that_leaves_entries_out_fails_at_its_end() {
    for options in ["io_uring=off", "io_uring=on,restart=off"] {
        let Some(place) = mounted_or_skipped(BROKEN_ENTRY, options) else {
            continue;
        };
        // List repeatedly: the kernel must not take the listing to be complete.
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
    let place = mounted_or_skipped(BROKEN_ENTRY, "").unwrap();
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

/// Reads the broken file. The kernel keeps no page of a failed read, so each read sends another
/// request.
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
        let end = format!("{count} faults of 1 kind, 0 of them not logged");
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
    let outcome = erofs_mount::mount(&request(&image, &place, "log=/nowhere/log"));
    let line = outcome.unwrap_err().to_string();
    assert!(line.contains("log=/nowhere/log: No such file"), "{line}");
    assert!(place.mount_line().is_none());
}

/// A copy of a test image; removed at the end.
struct Copy(PathBuf);

impl Copy {
    fn of(name: &str) -> Self {
        let copy = format!(
            "erofs-mount-copy-{}-{}",
            name.replace('/', "-"),
            std::process::id()
        );
        let copy = std::env::temp_dir().join(copy);
        fs::copy(image(name), &copy).unwrap();
        Self(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Replaces the bytes of an image with others.
type Overwrite<'o> = &'o dyn Fn(&[u8]) -> Vec<u8>;

/// Reads a tree, and returns all errors.
fn errors(directory: &Path) -> Vec<Option<i32>> {
    let mut errors = Vec::new();
    let mut note = |error: io::Error| errors.push(error.raw_os_error());
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten() {
            match entry.and_then(|entry| Ok((entry.file_type()?, entry.path()))) {
                Ok((kind, path)) if kind.is_dir() => directories.push(path),
                Ok((kind, path)) if kind.is_file() => {
                    let _ = fs::read(path).map_err(&mut note);
                }
                Ok(_) => {}
                Err(error) => note(error),
            }
        }
    }
    let _ = fs::read_dir(directory).map_err(&mut note);
    errors
}

fn an_image_that_is_overwritten_under_its_mount_is_said_to_have_changed() {
    const EIO: Option<i32> = Some(5);
    // A shorter file, a file of the same size, and another image.
    let garbage = |image: &[u8]| vec![0xa5; image.len()];
    let overwrites: [Overwrite<'_>; 3] = [
        &|image| image[..image.len() / 4].to_vec(),
        &|image| [&image[..4096], &garbage(image)[4096..]].concat(),
        &|image| garbage(image),
    ];
    for (number, overwrite) in overwrites.iter().enumerate() {
        let (copy, log) = (
            Copy::of("kitchen-sink"),
            Log::new(&format!("changed{number}")),
        );
        let place = Place::new();
        let options = format!("profile=off,{}", log.option());
        mount(&request(&copy.0, &place, &options)).unwrap();
        let counters = stat(&place.path).unwrap();
        assert_eq!(counters["faults"]["image_changed"], Value::Null);
        let bytes = overwrite(&fs::read(&copy.0).unwrap());
        fs::write(&copy.0, bytes).unwrap();
        let errors = errors(&place.path);
        assert!(!errors.is_empty(), "{number}");
        assert!(
            errors.iter().all(|errno| *errno == EIO),
            "{number}: {errors:?}"
        );
        let line = format!("{}: changed since it was mounted: ", copy.0.display());
        let counters = stat(&place.path).unwrap();
        let changed = counters["faults"]["image_changed"].as_str();
        assert!(
            changed.is_some_and(|it| it.starts_with(&line)),
            "{counters}"
        );
        let logged = || fs::read_to_string(&log.0).unwrap();
        soon("the line in the log", || logged().contains(&line));
        umount(&place.path, false).unwrap();
        assert_eq!(logged().matches(&line).count(), 1, "{}", logged());
    }
}

/// The helper opened the files once and remembers their state at that time. A successor that can
/// read the image reports the change together with a fault; one that cannot read it reports the
/// change when it ends.
fn a_successor_of_a_dead_server_knows_what_the_image_was() {
    let longer = |image: &[u8]| [image, b"x"].concat();
    let garbage = |image: &[u8]| vec![0xa5; image.len()];
    let overwrites: [Overwrite<'_>; 2] = [&longer, &garbage];
    for (number, overwrite) in overwrites.iter().enumerate() {
        let log = Log::new(&format!("successor{number}"));
        let (copy, place) = (Copy::of(IMAGE), Place::new());
        let options = format!("restart=on,profile=off,{}", log.option());
        mount(&request(&copy.0, &place, &options)).unwrap();
        let restart = &stat(&place.path).unwrap()["restart"];
        if restart["on"] == false {
            println!("skipped: {}", restart["reason"]);
            return;
        }
        let first = pid_of(&place);
        fs::write(&copy.0, overwrite(&fs::read(&copy.0).unwrap())).unwrap();
        kill(first, Signal::KILL);
        let line = format!("{}: changed since it was mounted: ", copy.0.display());
        let is_there = || fs::read_to_string(&log.0).is_ok_and(|log| log.contains(&line));
        if number == 0 {
            soon("the successor", || {
                stat(&place.path).is_ok_and(|now| now["restart"]["restarts"] == 1)
            });
            assert!(!errors(&place.path).is_empty());
            let counters = stat(&place.path).unwrap();
            let changed = counters["faults"]["image_changed"].as_str();
            let changed = changed.is_some_and(|changed| changed.starts_with(&line));
            assert!(changed, "{counters}");
        }
        soon("the line in the log", is_there);
    }
}

fn stat_says_that_an_image_was_overwritten_before_any_read_fails() {
    let (copy, log) = (Copy::of(IMAGE), Log::new("overwritten"));
    let place = Place::new();
    mount(&request(&copy.0, &place, &log.option())).unwrap();
    let changed = || stat(&place.path).unwrap()["faults"]["image_changed"].clone();
    fs::rename(&copy.0, copy.0.with_extension("renamed")).unwrap();
    assert_eq!(changed(), Value::Null, "a new name");
    fs::rename(copy.0.with_extension("renamed"), &copy.0).unwrap();
    let file = fs::File::options().write(true).open(&copy.0).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    let line = changed();
    assert!(line.as_str().unwrap().contains("changed since"), "{line}");
}

fn an_image_that_only_has_a_new_name_is_not_said_to_have_changed() {
    let (copy, log) = (Copy::of(IMAGE), Log::new("renamed"));
    let place = Place::new();
    mount(&request(&copy.0, &place, &log.option())).unwrap();
    let name = copy.0.with_extension("renamed");
    fs::rename(&copy.0, &name).unwrap();
    let found = errors(&place.path);
    fs::rename(&name, &copy.0).unwrap();
    assert!(!found.is_empty());
    let counters = stat(&place.path).unwrap();
    let changed = counters["faults"]["image_changed"].as_str().unwrap();
    assert!(changed.contains("may have changed"), "{changed}");
    let place = Place::new();
    mount(&request(&copy.0, &place, &log.option())).unwrap();
    assert_eq!(errors(&place.path), found);
    let counters = stat(&place.path).unwrap();
    assert_eq!(counters["faults"]["image_changed"], Value::Null);
}
