//! Mounts of real images. Needs root and `/dev/fuse`; says so when it has to skip.
//!
//! This test has a `main` of its own, because the daemon is this program started again.

mod manifest;
mod place;

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use erofs_fuse::{MountOptions, MountRequest, mount, stat, umount};

use place::{Place, image};

/// Far more than anything here takes; reached only when something hangs.
const LONG: Duration = Duration::from_secs(20);

const KNOB: &str = "/sys/module/fuse/parameters/enable_uring";

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    (
        "a_daemon_serves_when_mount_returns",
        a_daemon_serves_when_mount_returns,
    ),
    (
        "what_goes_wrong_is_one_line_and_leaves_nothing",
        what_goes_wrong_is_one_line_and_leaves_nothing,
    ),
    (
        "counters_keep_the_names_of_the_contract",
        counters_keep_the_names_of_the_contract,
    ),
    (
        "umount_tells_busy_from_foreign_from_nothing",
        umount_tells_busy_from_foreign_from_nothing,
    ),
    ("a_signal_unmounts_and_ends", a_signal_unmounts_and_ends),
    (
        "a_killed_daemon_leaves_nobody_waiting",
        a_killed_daemon_leaves_nobody_waiting,
    ),
    (
        "auto_unmount_outlives_the_daemon",
        auto_unmount_outlives_the_daemon,
    ),
    (
        "io_uring_serves_on_the_cpu_that_asks",
        io_uring_serves_on_the_cpu_that_asks,
    ),
    (
        "subdir_and_owner_change_what_is_seen",
        subdir_and_owner_change_what_is_seen,
    ),
    ("an_idle_mount_goes_away", an_idle_mount_goes_away),
    (
        "every_image_is_seen_as_its_manifest_says",
        every_image_is_seen_as_its_manifest_says,
    ),
];

fn main() -> ExitCode {
    if let Some(code) = erofs_fuse::run_if_daemon() {
        return code;
    }
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    if std::env::args().any(|argument| argument == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if let Some(why) = cannot_mount() {
        println!("skipped: {why}");
        return ExitCode::SUCCESS;
    }
    let chosen = TESTS
        .iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str())));
    let mut failed = 0;
    for (name, test) in chosen {
        let outcome = std::panic::catch_unwind(test);
        println!(
            "test {name} ... {}",
            if outcome.is_ok() { "ok" } else { "FAILED" }
        );
        failed += usize::from(outcome.is_err());
    }
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn cannot_mount() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting needs root".to_owned());
    }
    if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
        return Some(format!("/dev/fuse: {error}"));
    }
    let small = image("lz4-4k");
    (!small.exists()).then(|| format!("the test images are missing: {}", small.display()))
}

fn request(image: &Path, place: &Place, options: &str) -> MountRequest {
    MountRequest {
        image: image.to_owned(),
        mountpoint: place.path.clone(),
        options: MountOptions::parse(&[options]).unwrap(),
        foreground: false,
    }
}

fn mounted(name: &str, options: &str) -> Place {
    let place = Place::new();
    mount(&request(&image(name), &place, options)).unwrap();
    place
}

/// Waits for something that happens soon after its cause.
fn soon(what: &str, mut happened: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !happened() {
        assert!(begin.elapsed() < LONG, "{what} did not happen");
        thread::sleep(Duration::from_millis(20));
    }
}

fn pid_of(place: &Place) -> rustix::process::Pid {
    let pid = stat(&place.path).unwrap()["pid"].as_i64().unwrap();
    rustix::process::Pid::from_raw(pid as i32).unwrap()
}

fn kill(pid: rustix::process::Pid, signal: rustix::process::Signal) {
    rustix::process::kill_process(pid, signal).unwrap();
}

fn a_daemon_serves_when_mount_returns() {
    for workers in ["percpu", "unbound", "inline"] {
        let place = mounted("lz4-4k", &format!("workers={workers}"));
        assert!(fs::read_dir(&place.path).unwrap().count() > 3);
        let line = place.mount_line().unwrap();
        assert!(line.contains(" fuse.erofast ro,"), "{line}");
        umount(&place.path).unwrap();
        assert_eq!(place.mount_line(), None);
    }
}

fn what_goes_wrong_is_one_line_and_leaves_nothing() {
    let place = Place::new();
    let not_erofs = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let refusal = |image: &Path, options: &str| {
        let error = mount(&request(image, &place, options))
            .unwrap_err()
            .to_string();
        assert!(!error.contains('\n'), "{error}");
        assert_eq!(place.mount_line(), None);
        error
    };
    assert!(refusal(Path::new("/no/such.erofs"), "").contains("/no/such.erofs"));
    assert!(refusal(&not_erofs, "").contains("not an EROFS image"));
    assert!(refusal(&image("lz4-4k"), "subdir=no/such").contains("no/such"));
    let mut elsewhere = request(&image("lz4-4k"), &place, "");
    elsewhere.mountpoint = place.path.join("missing");
    let error = mount(&elsewhere).unwrap_err().to_string();
    assert!(error.ends_with("missing: no such directory"), "{error}");
}

fn counters_keep_the_names_of_the_contract() {
    let place = mounted(
        "lz4-4k",
        "workers=percpu,reserved_pages=16,nohipri,io_uring=off",
    );
    let first = fs::read_dir(place.path.join("text"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    fs::read(first).unwrap();
    let counters = stat(&place.path).unwrap();
    assert_eq!(counters["transport"], "dev_fuse");
    assert!(counters["requests"].as_u64() > Some(0) && counters["same_cpu"].is_u64());
    assert_eq!(counters["pool"]["reserved_pages"], 16);
    assert!(counters["pool"]["hits"].is_u64() && counters["pool"]["misses"].is_u64());
    assert!(counters["cache"]["hits"].is_u64() && counters["cache"]["misses"].is_u64());
    let workers = counters["workers"].as_array().unwrap();
    assert!(
        workers
            .iter()
            .any(|w| w["cpu"] == 0 && w["policy"] == "other" && w["done"].is_u64())
    );
    let done: u64 = workers
        .iter()
        .filter_map(|worker| worker["done"].as_u64())
        .sum();
    assert!(done > 0, "the workers served: {counters}");
    let mut names = [0; 256];
    assert_eq!(
        rustix::fs::listxattr(&place.path, &mut names[..]),
        Ok(0),
        "it is not listed"
    );
    let error = stat(Path::new("/")).unwrap_err().to_string();
    assert!(
        error.contains("not the mount point of an erofast mount"),
        "{error}"
    );
}

fn umount_tells_busy_from_foreign_from_nothing() {
    let place = mounted("lz4-4k", "");
    let inside = File::open(place.path.join("text")).unwrap();
    let error = umount(&place.path).unwrap_err().to_string();
    assert!(error.contains("is busy"), "{error}");
    drop(inside);
    umount(&place.path).unwrap();
    let error = umount(&place.path).unwrap_err().to_string();
    assert!(error.contains("is not a mount point"), "{error}");
    let error = umount(Path::new("/proc")).unwrap_err().to_string();
    assert!(error.contains("type proc"), "{error}");
}

fn a_signal_unmounts_and_ends() {
    let place = mounted("lz4-4k", "");
    let pid = pid_of(&place);
    kill(pid, rustix::process::Signal::TERM);
    soon("the unmounting", || place.mount_line().is_none());
    soon("the end of the daemon", || place::is_gone(pid));
}

/// Twenty times; `EROFS_FUSE_SOAK=500` makes it a soak test.
fn a_killed_daemon_leaves_nobody_waiting() {
    let cycles = std::env::var("EROFS_FUSE_SOAK")
        .ok()
        .and_then(|count| count.parse().ok());
    let mut slowest = Duration::ZERO;
    for options in ["io_uring=off", "io_uring=on"]
        .iter()
        .cycle()
        .take(cycles.unwrap_or(20))
    {
        let place = Place::new();
        match mount(&request(&image("kitchen-sink"), &place, options)) {
            Err(error) if *options == "io_uring=on" => {
                println!("skipped over io_uring: {error}");
                continue;
            }
            outcome => outcome.unwrap(),
        }
        slowest = slowest.max(kill_under_readers(&place));
        umount(&place.path).unwrap();
        mount(&request(&image("kitchen-sink"), &place, "io_uring=off")).unwrap();
        assert!(fs::read_dir(&place.path).unwrap().count() > 0);
    }
    println!("the last reader had its error after at most {slowest:?}");
}

/// Returns how long it took until the last of sixteen readers had its error.
fn kill_under_readers(place: &Place) -> Duration {
    let pid = pid_of(place);
    let (sender, outcomes) = mpsc::channel();
    for _ in 0..16 {
        let (sender, path) = (sender.clone(), place.path.clone());
        thread::spawn(move || sender.send(read_until_it_fails(&path)));
    }
    thread::sleep(Duration::from_millis(50));
    let begin = Instant::now();
    kill(pid, rustix::process::Signal::KILL);
    for _ in 0..16 {
        outcomes.recv_timeout(LONG).expect("a reader hangs");
    }
    let took = begin.elapsed();
    soon("the end of the daemon", || place::is_gone(pid));
    took
}

/// Reads all files again and again, without what the kernel keeps of them.
fn read_until_it_fails(root: &Path) -> std::io::Error {
    loop {
        if let Err(error) = rustix::fs::statfs(root) {
            return error.into();
        }
        if let Err(error) = read_tree(root) {
            return error;
        }
    }
}

fn read_tree(directory: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            read_tree(&entry.path())?;
        } else if kind.is_file() {
            let mut file = File::open(entry.path())?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
            let mut bytes = vec![0; 256 << 10];
            while file.read(&mut bytes)? > 0 {}
        }
    }
    Ok(())
}

fn auto_unmount_outlives_the_daemon() {
    let place = mounted("lz4-4k", "auto_unmount");
    let pid = pid_of(&place);
    kill(pid, rustix::process::Signal::KILL);
    soon("the unmounting", || place.mount_line().is_none());
}

fn io_uring_serves_on_the_cpu_that_asks() {
    let before = fs::read_to_string(KNOB).unwrap_or_default();
    let place = Place::new();
    let wish = request(&image("lz4-4k"), &place, "io_uring=on,workers=percpu");
    if let Err(error) = mount(&wish) {
        assert!(error.to_string().contains("io_uring"), "{error}");
        println!("skipped: {error}");
        return;
    }
    assert_eq!(
        fs::read_to_string(KNOB).unwrap(),
        before,
        "the knob is as it was"
    );
    read_tree(&place.path).unwrap();
    let counters = stat(&place.path).unwrap();
    assert_eq!(counters["transport"], "io_uring");
    let of = |field: &str| counters[field].as_u64().unwrap();
    // A busy CPU may leave some to the keeper.
    assert!(of("same_cpu") * 2 > of("requests"), "{counters}");
    assert_eq!(
        counters["fuse"]["cpu_unknown"],
        counters["fuse"]["by_transport"]["dev_fuse"]
    );
    umount(&place.path).unwrap();
}

fn subdir_and_owner_change_what_is_seen() {
    use std::os::unix::fs::MetadataExt;
    let place = mounted("lz4-4k", "subdir=text,uid=7,gid=8");
    let entry = fs::read_dir(&place.path).unwrap().next().unwrap().unwrap();
    assert!(entry.file_type().unwrap().is_file());
    let meta = entry.metadata().unwrap();
    assert_eq!((meta.uid(), meta.gid()), (7, 8));
    assert_eq!(fs::metadata(&place.path).unwrap().uid(), 7);
}

fn an_idle_mount_goes_away() {
    let place = mounted("lz4-4k", "timeout=1");
    let inside = File::open(place.path.join("text")).unwrap();
    thread::sleep(Duration::from_millis(1500));
    assert!(place.mount_line().is_some(), "it is in use");
    drop(inside);
    soon("the unmounting", || place.mount_line().is_none());
}

fn every_image_is_seen_as_its_manifest_says() {
    let Ok(python) = Command::new("python3").arg("--version").output() else {
        println!("skipped: verify_tree.py needs python3");
        return;
    };
    assert!(python.status.success());
    let (mut seen, mut refused) = (0, 0);
    for image in manifest::images_of(&manifest::images_table()) {
        let place = Place::new();
        if let Err(error) = mount(&request(&image.path, &place, &image.options)) {
            println!("refused: {error}");
            refused += 1;
            continue;
        }
        let check = Command::new("python3")
            .args(image.check(&place.path))
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&check.stdout);
        assert!(check.status.success(), "{}: {output}", image.path.display());
        umount(&place.path).unwrap();
        seen += 1;
    }
    println!("{seen} images seen as they should be, {refused} refused");
    assert!(seen > 0);
}
