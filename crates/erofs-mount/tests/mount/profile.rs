//! Launch profiles are recorded by one mount and replayed by the next.

use std::collections::BTreeSet;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use launch_profile::{ImageIdentity, Learned, PAGE};
use serde_json::Value;

use super::*;
use crate::built::BuiltImage;

pub(super) const TESTS: &[Test] = tests![
    what_a_launch_read_is_learned_and_read_ahead_the_next_time,
    a_profile_of_another_image_is_learned_anew,
    a_file_that_is_no_profile_is_left_alone,
    a_profile_below_the_mount_point_or_in_no_folder_is_refused,
    launches_are_learned_and_expected_where_there_was_one_of_late,
    what_launches_read_is_kept_decoded_where_decoding_takes_long,
];

/// The helper would read a profile below the mount point through the mount, whose server waits for
/// the helper.
fn a_profile_below_the_mount_point_or_in_no_folder_is_refused() {
    let place = Place::new();
    let here = place.path.display();
    for (profile, why) in [
        (format!("{here}"), "is below the mount point"),
        (format!("{here}/launch.profile"), "is below the mount point"),
        (
            format!("{here}/none/launch.profile"),
            "is below the mount point",
        ),
        (
            "/none/launch.profile".to_owned(),
            "profile=/none/launch.profile: /none: No such file",
        ),
    ] {
        let options = format!("profile={profile}");
        let refused = mount(&request(&image("lz4-4k"), &place, &options));
        let error = refused.unwrap_err().to_string();
        assert!(error.contains(why), "{options}: {error}");
        assert_eq!(place.mount_line(), None);
    }
}

/// The path of a file that is removed at the end of the test.
struct ProfilePath(PathBuf);

impl ProfilePath {
    fn new(name: &str) -> Self {
        let name = format!("erofs-mount-test-{}-{name}.profile", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn option(&self) -> String {
        format!("profile={}", self.0.display())
    }

    fn read(&self) -> Learned {
        Learned::parse_any(&fs::read(&self.0).unwrap()).unwrap()
    }
}

impl Drop for ProfilePath {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Reads pages 0, 1 and 3 of a file, and looks up a name that is absent.
fn launch(place: &Place) {
    let file = File::open(place.path.join("data/mixed-200000")).unwrap();
    for page in [0, 1, 3] {
        file.read_exact_at(&mut [0; 4096], page * PAGE).unwrap();
    }
    assert!(!place.path.join("data/none").exists());
}

fn profile_counters(place: &Place) -> Value {
    stat(&place.path).unwrap()["profile"].clone()
}

/// Unmounts, and waits for the end of the mount helper, which writes what was learned before it
/// ends.
fn unmount_and_wait(place: Place) {
    let helper = crate::life::parent_of(pid_of(&place));
    drop(place);
    soon("the daemon ends", || place::is_gone(helper));
}

fn what_a_launch_read_is_learned_and_read_ahead_the_next_time() {
    for transport in ["sandbox=on", "sandbox=off", "workers=inline"] {
        let path = ProfilePath::new("launch");
        let options = format!("{},{transport},read_ahead_kb=0", path.option());
        let place = mounted("lz4-64k", &options);
        assert_eq!(profile_counters(&place)["state"], "learning");
        launch(&place);
        unmount_and_wait(place);
        let program = &path.read().programs[0];
        assert_eq!(program.path, b"data/mixed-200000");
        let window = program.profile.windows[0];
        assert_eq!(program.profile.windows.len(), 1);
        // Pages that are decoded together with others are stored, and therefore not requested.
        assert_eq!(window.pages & 0b1, 1);
        let absent = program.profile.names.iter();
        let absent = absent.map(|looked_up| program.profile.path(&looked_up.name));
        assert!(absent.into_iter().any(|path| path == b"data/none"));

        let place = mounted("lz4-64k", &options);
        soon("the replay is over", || {
            let counters = profile_counters(&place);
            counters["prefetched_bytes"] == program.profile.bytes() - PAGE
                && counters["listed_directories"] != 0
                && counters["state"] == "replayed"
        });
        let lookups = || stat(&place.path).unwrap()["fuse"]["by_kind"]["lookup"].clone();
        let before = lookups();
        launch(&place);
        assert_eq!(lookups(), before, "{transport}");
        let plain = mounted("lz4-64k", "cache=0");
        let bytes = |place: &Place| fs::read(place.path.join("data/mixed-200000")).unwrap();
        assert_eq!(bytes(&place), bytes(&plain));
        unmount_and_wait(place);
        assert_eq!(path.read().programs[0].launches, 2);
    }
}

fn a_profile_of_another_image_is_learned_anew() {
    let path = ProfilePath::new("other");
    let image = ImageIdentity {
        blocks: 1,
        ..ImageIdentity::default()
    };
    let other = Learned {
        image: Some(image),
        programs: Vec::new(),
    };
    fs::write(&path.0, other.to_text()).unwrap();
    let place = mounted("lz4-64k", &path.option());
    launch(&place);
    soon("the file is read", || {
        !profile_counters(&place)["error"].is_null()
    });
    let line = profile_counters(&place)["error"].clone();
    let line = line.as_str().unwrap();
    assert!(
        line.starts_with("launch profile of a different image"),
        "{line}"
    );
    unmount_and_wait(place);
    assert_ne!(path.read().image, Some(image));
}

fn a_file_that_is_no_profile_is_left_alone() {
    let path = ProfilePath::new("letter");
    fs::write(&path.0, "Dear reader").unwrap();
    let place = Place::new();
    let error = mount(&request(&image("lz4-64k"), &place, &path.option())).unwrap_err();
    let error = error.to_string();
    let what = format!("{}: profile: not a launch profile", path.0.display());
    assert!(error.contains(&what), "{error}");
    assert!(place.mount_line().is_none());
    assert_eq!(fs::read(&path.0).unwrap(), b"Dear reader");
}

/// The profiles that root's mounts have learned.
fn learned_files() -> BTreeSet<PathBuf> {
    files_in_cache("profile")
}

fn files_in_cache(end: &str) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir("/var/cache/erofast").into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path());
    let ends = |path: &PathBuf| path.extension().is_some_and(|it| it == end);
    paths.filter(ends).collect()
}

/// Removes a file when dropped.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn what_launches_read_is_kept_decoded_where_decoding_takes_long() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: not root");
    }
    let (name, options) = ("lzma-1m-dict8m", "profile=auto,read_ahead_kb=0");
    let before = learned_files();
    // Remove files left by a run that was killed.
    let forget = || {
        kept_of(name)
            .into_iter()
            .for_each(|path| drop(Removed(path)))
    };
    forget();
    let launch = |place: &Place| {
        let mut files = files_of(&place.path);
        files.sort();
        let read = |path: PathBuf| fs::read(path).unwrap();
        files.into_iter().map(read).collect::<Vec<_>>()
    };
    let place = mounted(name, options);
    let contents = launch(&place);
    assert_eq!(profile_counters(&place)["kept_bytes"], 0);
    unmount_and_wait(place);
    let new = || {
        learned_files()
            .difference(&before)
            .cloned()
            .map(Removed)
            .collect()
    };
    let _profile: Vec<Removed> = new();
    let kept = Removed(kept_of(name).pop().expect("something kept"));

    // The replay uses the kept bytes.
    let replayed = || {
        let place = mounted(name, options);
        soon("the replay", || {
            let counters = profile_counters(&place);
            counters["state"] == "replayed" && counters["prefetched_bytes"] != 0
        });
        place
    };
    let place = replayed();
    assert_ne!(profile_counters(&place)["kept_bytes"], 0);
    assert!(launch(&place) == contents);
    unmount_and_wait(place);

    // If the kept bytes are damaged, they are decoded and written again.
    let mut bytes = fs::read(&kept.0).unwrap();
    bytes[..100_000].fill(0x55);
    fs::write(&kept.0, &bytes).unwrap();
    let place = replayed();
    assert!(launch(&place) == contents);
    unmount_and_wait(place);
    assert!(fs::read(&kept.0).unwrap() != bytes);

    // Decoded bytes are kept separately for another image and for the same image after a change.
    fs::remove_file(&kept.0).unwrap();
    let place = mounted(name, &format!("{options},decoded_size=0"));
    launch(&place);
    unmount_and_wait(place);
    let place = mounted("lz4-64k", options);
    launch(&place);
    unmount_and_wait(place);
    let _lz4: Vec<Removed> = new();
    assert!(kept_of(name).is_empty() && kept_of("lz4-64k").is_empty());
}

/// The decoded bytes kept for an image.
fn kept_of(name: &str) -> Vec<PathBuf> {
    let status = fs::metadata(image(name)).unwrap();
    let stem = format!("{:x}-{:x}-", status.dev(), status.ino());
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(&stem)
    };
    files_in_cache("decoded")
        .into_iter()
        .filter(is_one)
        .collect()
}

/// All regular files below a directory.
fn files_of(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let files = entries.flat_map(|entry| match entry.file_type().unwrap() {
        kind if kind.is_dir() => files_of(&entry.path()),
        kind if kind.is_file() => vec![entry.path()],
        _ => Vec::new(),
    });
    files.collect()
}

fn launches_are_learned_and_expected_where_there_was_one_of_late() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: not root");
    }
    let Some(built) = BuiltImage::new("learned", &["-zlz4hc"], 3) else {
        return;
    };
    let mounted = || {
        let place = Place::new();
        let options = "profile=learn,read_ahead_kb=0";
        mount(&request(&built.image(), &place, options)).unwrap();
        place
    };
    let read = |place: &Place, name: &str, pages: &[u64]| {
        let file = File::open(place.path.join(name)).unwrap();
        for page in pages {
            let _ = file.read_at(&mut [0; 4096], page * PAGE).unwrap();
        }
    };
    let launch = |place: &Place| {
        read(place, "exec", &[0]);
        read(place, "data/1", &[0, 1, 3]);
    };
    let before = learned_files();

    // Nothing is learned from reading a file that is not executed.
    let place = mounted();
    read(&place, "data/1", &[0]);
    assert_eq!(profile_counters(&place)["state"], "learning");
    unmount_and_wait(place);
    assert_eq!(learned_files(), before);

    let place = mounted();
    launch(&place);
    unmount_and_wait(place);
    let new: Vec<PathBuf> = learned_files().difference(&before).cloned().collect();
    let file = Removed(new.first().expect("something learned").clone());
    let learned = || Learned::parse_any(&fs::read(&file.0).unwrap()).unwrap();
    let program = &learned().programs[0];
    assert_eq!((&program.path[..], program.launches), (&b"exec"[..], 1));
    assert_eq!(program.profile.bytes(), 3 * PAGE + 10);

    // The next mount expects the launch.
    let place = mounted();
    let replayed = || profile_counters(&place)["state"] == "replayed";
    soon("the replay", || {
        replayed() && profile_counters(&place)["prefetched_bytes"] == 3 * PAGE
    });
    let reads = || stat(&place.path).unwrap()["fuse"]["by_kind"]["read"].clone();
    let asked = reads();
    read(&place, "data/1", &[0, 1, 3]);
    assert_eq!(reads(), asked);
    launch(&place);
    soon("the end of the launch", || {
        profile_counters(&place)["programs"][0]["launches"] == 2
    });
    let shown = &profile_counters(&place)["programs"][0];
    assert_eq!(
        (&shown["path"], &shown["windows_asked"]),
        (&"exec".into(), &1.into())
    );
    unmount_and_wait(place);

    // After three mounts without a launch, no launch is expected any more.
    for idle in 1..=3 {
        unmount_and_wait(mounted());
        assert_eq!(learned().programs[0].idle_mounts, idle);
    }
    let idle = fs::read(&file.0).unwrap();
    let place = mounted();
    assert_eq!(profile_counters(&place)["state"], "learning");
    assert_eq!(
        profile_counters(&place)["programs"],
        Value::Array(Vec::new())
    );
    launch(&place);
    let replayed = || profile_counters(&place)["state"] == "replayed";
    soon("the replay begins with the launch", replayed);
    unmount_and_wait(place);
    let program = &learned().programs[0];
    assert_eq!((program.idle_mounts, program.launches), (0, 3));

    // If a profile is removed while a mount exists, or during a launch, the next launch is learned
    // again.
    let bytes = fs::read(&file.0).unwrap();
    let is_read = |place: &Place| profile_counters(place)["programs"] != Value::Array(Vec::new());
    let place = mounted();
    soon("the file is read", || is_read(&place));
    fs::remove_file(&file.0).unwrap();
    unmount_and_wait(place);
    assert!(!file.0.exists());
    fs::write(&file.0, idle).unwrap();
    let place = mounted();
    launch(&place);
    soon("the file is read", || is_read(&place));
    fs::remove_file(&file.0).unwrap();
    unmount_and_wait(place);
    assert!(!file.0.exists(), "the launch began before");
    let place = mounted();
    let launched = || {
        // Make the kernel drop the program's pages, as if it had not been launched for a long time.
        let exec = File::open(place.path.join("exec")).unwrap();
        rustix::fs::fadvise(exec, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        launch(&place);
        soon("the launch is learned", || file.0.exists());
        assert_eq!(learned().programs[0].launches, 1);
        fs::remove_file(&file.0).unwrap();
    };
    launched();
    launched();
    unmount_and_wait(place);
    assert!(!file.0.exists());
    fs::write(&file.0, bytes).unwrap();

    // If two mounts exist at the same time, neither overwrites what the other has learned.
    let (one, other) = (mounted(), mounted());
    launch(&one);
    unmount_and_wait(one);
    unmount_and_wait(other);
    assert_eq!(learned().programs[0].launches, 4);

    // In the cache folder, every file counts as ours.
    for damaged in ["ERO", "erofast", "Dear reader"] {
        fs::write(&file.0, damaged).unwrap();
        let place = mounted();
        launch(&place);
        unmount_and_wait(place);
        assert_eq!(learned().programs[0].launches, 1, "{damaged}");
    }

    // A damaged profile is learned again.
    let text = fs::read_to_string(&file.0).unwrap();
    fs::write(&file.0, text.replace("read ", "read x")).unwrap();
    let place = mounted();
    launch(&place);
    let line = || profile_counters(&place)["error"].to_string();
    soon("the file is read", || line().contains("damaged"));
    unmount_and_wait(place);
    assert_eq!(
        Learned::parse_any(&fs::read(&file.0).unwrap())
            .unwrap()
            .programs
            .len(),
        1
    );
}
