//! Runs the tools on mutants of good images, and mounts them: each run ends, with bounded memory,
//! and nothing crashes or stays mounted.
//!
//! `EROFAST_MUTATE_SECONDS` sets the duration (default 3), `EROFAST_MUTATE_FROM` the first number
//! (default 0). A failing mutant is reported by its image and its number, which reproduce it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::erofast;
use crate::common::watch::{MEMORY_KIB, watch};
use erofs_oracles::mutate::Mutator;

/// Accesses to a mount, killed after 3 seconds, since a mutant may have endless files.
const READER: &str = "ls -lR; find . | head -300 | while read -r name; do
    head -c 65536 \"$name\"; getfattr -d -- \"$name\"; done";

/// Images of the repository that are small enough for many mutants.
fn mutators() -> Vec<(String, Mutator)> {
    const LARGEST: u64 = 600 << 10;
    let files = std::fs::read_dir(crate::common::fixtures()).expect("the images");
    let mut paths: Vec<PathBuf> = files.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| {
        path.extension().is_some_and(|ending| ending == "erofs")
            && path.metadata().is_ok_and(|meta| meta.len() <= LARGEST)
    });
    paths.sort();
    let mutator = |path: &PathBuf| {
        let name = path.file_name()?.to_string_lossy().into_owned();
        Some((name, Mutator::new(&std::fs::read(path).ok()?)?))
    };
    let found: Vec<_> = paths.iter().filter_map(mutator).collect();
    assert!(found.len() > 5, "{} images", found.len());
    found
}

fn number(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |value| value.parse().expect("a number"))
}

/// Counters for one run of this test.
#[derive(Default)]
struct Seen {
    runs: u64,
    mounts: u64,
    slowest: Duration,
    slowest_what: String,
    peak_kib: u64,
    complaints: Vec<String>,
}

impl Seen {
    /// Runs a program and returns its exit status, if it has one.
    fn run(&mut self, what: &str, command: &mut Command) -> Option<i32> {
        let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
        let begin = Instant::now();
        let (peak, output) = watch(quiet.stderr(Stdio::null()).spawn().expect("it starts"));
        self.runs += 1;
        self.peak_kib = self.peak_kib.max(peak);
        if begin.elapsed() > self.slowest {
            (self.slowest, self.slowest_what) = (begin.elapsed(), what.to_owned());
        }
        if peak > MEMORY_KIB {
            self.complaints.push(format!("{what}: {peak} KiB"));
        }
        output.status.code()
    }

    /// Runs a tool, which must exit with 0 (success) or 1 (with one line about the image).
    fn tool(&mut self, what: &str, command: &mut Command) -> bool {
        let status = self.run(what, command);
        if !matches!(status, Some(0 | 1)) {
            self.complaints.push(format!("{what}: status {status:?}"));
        }
        status == Some(0)
    }

    fn tools(&mut self, name: &str, image: &Path, directory: &Path) {
        let target = directory.join("target");
        for arguments in [&["check"][..], &["info"], &["ls", "-lR"], &["extract"]] {
            let mut command = erofast();
            command.args(arguments).arg(image);
            if arguments == ["extract"] {
                command.arg(&target);
            }
            self.tool(&format!("{name}: {}", arguments[0]), &mut command);
        }
        let _ = std::fs::remove_dir_all(target);
    }

    fn mount(&mut self, name: &str, image: &Path, point: &Path, transport: &str) {
        let what = format!("{name}: {transport}");
        let mut mount = erofast();
        mount.args(["mount", "-o", transport]).arg(image).arg(point);
        if !self.tool(&what, &mut mount) {
            return;
        }
        self.mounts += 1;
        let mut reader = Command::new("timeout");
        reader.args(["-s", "KILL", "3", "sh", "-c", READER]);
        self.run(&format!("{what}: reader"), reader.current_dir(point));
        // After a crash of the daemon the mount is no longer connected (ENOTCONN).
        let absent = point
            .join(format!("absent-{}", self.runs))
            .symlink_metadata();
        if let Some(107) = absent.err().and_then(|error| error.raw_os_error()) {
            self.complaints.push(format!("{what}: the daemon is gone"));
        }
        let begin = Instant::now();
        while !self.tool(
            &format!("{what}: umount"),
            erofast().arg("umount").arg(point),
        ) {
            // Killed processes may linger for a moment.
            assert!(
                begin.elapsed() < Duration::from_secs(120),
                "{what} stays mounted"
            );
        }
    }
}

fn can_mount() -> Result<(), &'static str> {
    let device = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/fuse");
    let own = std::fs::metadata("/proc/self").expect("proc");
    match (own.uid() == 0, device) {
        (false, _) => Err("mounting needs root"),
        (_, Err(_)) => Err("/dev/fuse cannot be opened"),
        _ => Ok(()),
    }
}

#[test]
fn mutants_of_good_images_neither_crash_nor_hang_tools_and_mounts() {
    let mutators = mutators();
    let directory = tempfile::tempdir().expect("a directory");
    let (image, point) = (
        directory.path().join("image"),
        directory.path().join("point"),
    );
    std::fs::create_dir(&point).expect("a directory");
    let mounts = can_mount().inspect_err(|why| println!("skipped: {why}"));
    let duration = Duration::from_secs(number("EROFAST_MUTATE_SECONDS", 3));
    let first = number("EROFAST_MUTATE_FROM", 0);
    let (begin, mut seen, mut mutants) = (Instant::now(), Seen::default(), 0);
    while begin.elapsed() < duration || mutants == 0 {
        let number = first + mutants;
        let (name, mutator) = &mutators[number as usize % mutators.len()];
        std::fs::write(&image, mutator.mutant(number)).expect("a file");
        let name = format!("{name} mutant {number}");
        seen.tools(&name, &image, directory.path());
        if mounts.is_ok() {
            for transport in ["io_uring=off", "io_uring=on"] {
                seen.mount(&name, &image, &point, transport);
            }
        }
        mutants += 1;
    }
    println!(
        "{mutants} mutants, {} programs, {} mounts; most memory of a program: {} KiB; the slowest \
         took {:?}: {}",
        seen.runs, seen.mounts, seen.peak_kib, seen.slowest, seen.slowest_what
    );
    assert!(seen.complaints.is_empty(), "{}", seen.complaints.join("\n"));
}
