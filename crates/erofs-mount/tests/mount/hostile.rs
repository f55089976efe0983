//! Mounts of hostile images end when asked to, whatever is being read; killed readers are released,
//! and other files are served.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use erofs_engine::budget::{MAX_BYTES, MAX_STEPS};
use erofs_mount::{mount, umount};
use erofs_oracles::hostile::{self, Class};
use rustix::process::Signal;

use crate::place::{self, Place};
use crate::{Test, kill, pid_of, request, soon};

pub const TESTS: &[Test] = tests![
    a_signal_ends_a_mount_whatever_is_read_of_it,
    killed_readers_of_hostile_images_end_and_the_mount_can_be_taken_away,
    other_files_are_served_whatever_is_read_of_a_hostile_one,
];

/// An image that is removed when this is dropped.
struct Image(PathBuf);

impl Image {
    fn new(class: Class) -> Self {
        let name = format!("erofs-mount-{class:?}-{}.erofs", std::process::id());
        let path = std::env::temp_dir().join(name);
        hostile::write(class, &path).unwrap();
        Self(path)
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Programs that access a hostile inode, repeatedly, in four processes.
const READERS: [&str; 4] = [
    "while :; do ls -f huge d; done",
    "while :; do ls -l huge/absent-$((i+=1)) d/*; done",
    "while :; do dd if=huge bs=4096 count=1 skip=$(((i+=7919)*1000)); done",
    "while :; do find . -name absent; ls -lR .; done",
];

struct Readers(Vec<Child>);

impl Readers {
    fn start(directory: &Path) -> Self {
        let start = |script| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]).current_dir(directory);
            // Give the shell its own process group, so that it can be killed together with its
            // children.
            std::os::unix::process::CommandExt::process_group(&mut shell, 0);
            let quiet = shell.stdout(Stdio::null()).stderr(Stdio::null());
            quiet.spawn().unwrap()
        };
        let readers = Self(READERS.map(start).into());
        thread::sleep(Duration::from_millis(150));
        readers
    }

    /// Kills all readers and waits until they are gone.
    fn end(self) {
        drop(self);
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        for reader in &self.0 {
            let group = rustix::process::Pid::from_child(reader);
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        for reader in &mut self.0 {
            let _ = reader.wait();
        }
    }
}

/// Mounts an image of this class over `transport`, with default options otherwise.
fn mounted_or_skipped(class: Class, transport: &str) -> Option<(Image, Place)> {
    let (image, place) = (Image::new(class), Place::new());
    match mount(&request(&image.0, &place, transport)) {
        Err(error) if transport == "io_uring=on" => {
            println!("skipped over io_uring: {error}");
            return None;
        }
        outcome => outcome.unwrap(),
    }
    Some((image, place))
}

fn each_mount(mut test: impl FnMut(&Place, &str)) {
    for transport in ["io_uring=off", "io_uring=on"] {
        for class in Class::ALL {
            if let Some((_image, place)) = mounted_or_skipped(class, transport) {
                test(&place, &format!("{transport} {class:?}"));
            }
        }
    }
}

/// All mounts over one transport exist at the same time, because the test waits a while for the
/// readers of each.
fn a_signal_ends_a_mount_whatever_is_read_of_it() {
    for transport in ["io_uring=off", "io_uring=on"] {
        let mounts: Vec<_> = Class::ALL
            .into_iter()
            .filter_map(|class| mounted_or_skipped(class, transport))
            .map(|(image, place)| {
                // Ask for the server's ID before starting the readers: while they run, the server
                // may answer too late.
                let pid = pid_of(&place);
                (Readers::start(&place.path), pid, image, place)
            })
            .collect();
        mounts
            .iter()
            .for_each(|(_, pid, ..)| kill(*pid, Signal::TERM));
        for (_, pid, _, place) in &mounts {
            soon("the unmounting", || place.mount_line().is_none());
            soon("the end of the daemon", || place::is_gone(*pid));
        }
    }
}

fn killed_readers_of_hostile_images_end_and_the_mount_can_be_taken_away() {
    let mut slowest = Duration::ZERO;
    each_mount(|place, what| {
        let readers = Readers::start(&place.path);
        let begin = Instant::now();
        readers.end();
        let ended = begin.elapsed();
        // The children of a killed shell may end a moment later than the shell.
        soon("the unmounting", || umount(&place.path, false).is_ok());
        let took = begin.elapsed();
        println!("{what}: readers gone after {ended:?}, unmounted after {took:?}");
        slowest = slowest.max(took);
    });
    println!("the last mount was gone after at most {slowest:?}");
}

/// Makes each of the most expensive requests for a hostile inode once, and waits for the answer,
/// which may be an error.
fn ask_once(huge: &Path) {
    let _ = huge.join("absent").symlink_metadata();
    let _ = fs::read_dir(huge).map(|entries| entries.take(1000).count());
    if let Ok(file) = fs::File::open(huge) {
        let mut bytes = [0; 4096];
        for offset in [0, (1 << 36) - 4096, 1 << 36, 1 << 42, (1 << 43) - 4096] {
            let _ = std::os::unix::fs::FileExt::read_at(&file, &mut bytes, offset);
        }
    }
}

/// Checks the limits of steps, bytes and memory for the most expensive request of a mount, and
/// describes its cost.
fn requests_within_bounds(place: &Place) -> String {
    // The largest request of a mount is a read of 1 MiB.
    const READ: u64 = 1 << 20;
    const MEMORY_KIB: u64 = 128 << 10;
    ask_once(&place.path.join("huge"));
    let stat = erofs_mount::stat(&place.path).unwrap();
    let requests = &stat["engine"]["requests"];
    let of = |name: &str| requests[name].as_u64().unwrap();
    assert!(of("steps") <= MAX_STEPS + READ / 64, "{requests}");
    assert!(of("bytes") <= MAX_BYTES + READ * 4, "{requests}");
    let status = fs::read_to_string(format!("/proc/{}/status", stat["pid"])).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak: u64 = peak
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .unwrap();
    assert!(peak <= MEMORY_KIB, "{peak} KiB");
    format!("{requests}; {peak} KiB")
}

fn other_files_are_served_whatever_is_read_of_a_hostile_one() {
    let mut slowest = Duration::ZERO;
    each_mount(|place, what| {
        let readers = Readers::start(&place.path);
        for number in 0..20 {
            let begin = Instant::now();
            // Look up new names, for which the kernel's caches have no answer.
            assert!(!place.path.join(format!("absent-{number}")).exists());
            assert_eq!(fs::read(place.path.join("good")).unwrap(), b"good\n");
            slowest = slowest.max(begin.elapsed());
        }
        readers.end();
        let took = requests_within_bounds(place);
        println!("{what}: {took}");
    });
    println!("the slowest lookup beside them took {slowest:?}");
}
