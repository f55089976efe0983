//! Mounts of real images. Needs root and `/dev/fuse`; prints a line when it skips.
//!
//! This test has a `main` of its own, because the daemon is this program started again.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use erofs_fuse::{MountOptions, MountRequest, mount, stat};

use place::{Place, image};

/// Far more than anything here takes; reached only when something hangs.
const LONG: Duration = Duration::from_secs(20);

const ENABLE_URING: &str = "/sys/module/fuse/parameters/enable_uring";

type Test = (&'static str, fn());

/// Tests by their own names.
macro_rules! tests {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), $name)),*] };
}

mod built;
mod covered;
mod death;
mod exported;
mod fallback;
mod faults;
mod hostile;
mod killed;
mod life;
mod manifest;
mod metadata;
mod place;
mod priority;
mod profile;
mod random;
mod read_ahead;
mod readonly;
mod remainder;
mod restarted;
mod sandboxed;
mod soak;
mod watchdog;

const TESTS: &[&[Test]] = &[
    life::TESTS,
    priority::TESTS,
    metadata::TESTS,
    remainder::TESTS,
    read_ahead::TESTS,
    profile::TESTS,
    sandboxed::TESTS,
    covered::TESTS,
    faults::TESTS,
    fallback::TESTS,
    killed::TESTS,
    hostile::TESTS,
    restarted::TESTS,
    soak::TESTS,
    readonly::TESTS,
    random::TESTS,
    exported::TESTS,
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
        TESTS
            .concat()
            .iter()
            .for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if let Some(why) = cannot_mount() {
        println!("skipped: {why}\ntest result: ok. 1 passed; 0 failed; 0 ignored");
        return ExitCode::SUCCESS;
    }
    let all = TESTS.concat();
    let skipped: Vec<String> = std::env::args()
        .filter_map(|argument| argument.strip_prefix("--skip=").map(str::to_owned))
        .collect();
    let chosen = all
        .iter()
        .filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|w| is_wanted(name, w)))
        .filter(|(name, _)| !skipped.iter().any(|part| name.contains(part)));
    let (mut passed, mut failed) = (0, 0);
    let watchdog = watchdog::start();
    for (name, test) in chosen {
        watchdog.begin(name);
        let outcome = std::panic::catch_unwind(test);
        println!(
            "test {name} ... {}",
            if outcome.is_ok() { "ok" } else { "FAILED" }
        );
        passed += usize::from(outcome.is_ok());
        failed += usize::from(outcome.is_err());
    }
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {result}. {passed} passed; {failed} failed; 0 ignored");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// By a part of its name, or by all of it with `--exact`.
fn is_wanted(name: &str, wanted: &str) -> bool {
    match std::env::args().any(|argument| argument == "--exact") {
        true => name == wanted,
        false => name.contains(wanted),
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

/// Only `io_uring=on` may be refused.
fn mounted_or_skipped(name: &str, options: &str) -> Option<Place> {
    let place = Place::new();
    match mount(&request(&image(name), &place, options)) {
        Err(error) if options.contains("io_uring=on") => {
            println!("skipped: {error}");
            None
        }
        outcome => outcome
            .map(|()| place)
            .map_err(|error| panic!("{options}: {error}"))
            .ok(),
    }
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

/// Reads all files, without what the kernel keeps of them.
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
