//! Tests that mount real images. They need root and `/dev/fuse`; a test that is skipped prints a
//! line.
//!
//! This test has its own `main`, because the daemon is this program started again.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use erofs_mount::{MountOptions, MountRequest, mount, stat};

use harness::Test;
use place::{Place, image};

/// Far longer than anything here takes; reached only if something hangs.
const LONG: Duration = Duration::from_secs(120);

#[macro_use]
mod harness;

mod built;
mod companion;
mod covered;
mod death;
mod exported;
mod fallback;
mod faults;
mod holes;
mod hostile;
mod injected;
mod killed;
mod life;
mod manifest;
mod mapped;
mod metadata;
mod place;
mod priority;
mod profile;
mod random;
mod random_faults;
mod read_ahead;
mod readonly;
mod remainder;
mod restarted;
mod sandboxed;
mod soak;
mod standby;
#[path = "../../../fuse-transport/tests/mount/switch.rs"]
mod switch;
mod watchdog;

const TESTS: &[&[Test]] = &[
    life::TESTS,
    priority::TESTS,
    metadata::TESTS,
    remainder::TESTS,
    read_ahead::TESTS,
    profile::TESTS,
    companion::TESTS,
    sandboxed::TESTS,
    injected::TESTS,
    covered::TESTS,
    faults::TESTS,
    fallback::TESTS,
    killed::TESTS,
    holes::TESTS,
    hostile::TESTS,
    restarted::TESTS,
    soak::TESTS,
    standby::TESTS,
    readonly::TESTS,
    random::TESTS,
    random_faults::TESTS,
    exported::TESTS,
    mapped::TESTS,
];

fn main() -> ExitCode {
    if let Some(code) = erofs_mount::run_if_daemon() {
        return code;
    }
    let watchdog = watchdog::start();
    harness::run(&TESTS.concat(), cannot_mount(), |name| watchdog.begin(name))
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

fn upgrade(place: &Place) -> Result<(), erofs_mount::Error> {
    let mut upgraded = erofs_mount::upgrade_each(std::slice::from_ref(&place.path));
    upgraded.remove(0).outcome
}

fn mounted(name: &str, options: &str) -> Place {
    let place = Place::new();
    mount(&request(&image(name), &place, options)).unwrap();
    place
}

/// Mounts a test image. If `io_uring=on` is refused, prints a line and returns `None`; other
/// failures are errors.
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

/// Waits for an event that follows soon after its cause, and fails if it does not happen.
fn soon(what: &str, happened: impl FnMut() -> bool) {
    assert!(happens(happened), "{what} did not happen");
}

/// Waits for an event; returns false if it does not happen.
fn happens(mut happened: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while !happened() {
        if begin.elapsed() > LONG {
            return false;
        }
        thread::sleep(Duration::from_millis(20));
    }
    true
}

fn pid_of(place: &Place) -> rustix::process::Pid {
    let pid = stat(&place.path).unwrap()["pid"].as_i64().unwrap();
    rustix::process::Pid::from_raw(pid as i32).unwrap()
}

fn kill(pid: rustix::process::Pid, signal: rustix::process::Signal) {
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Reads all files, without using the kernel's caches.
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
