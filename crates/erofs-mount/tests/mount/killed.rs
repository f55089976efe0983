//! A daemon that is killed leaves no reader waiting.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use erofs_mount::{mount, umount};
use rustix::fs::{Advice, fadvise};
use rustix::process::Pid;

use crate::built::Random;
use crate::death::Death;
use crate::place::{self, Place, image};
use crate::{LONG, Test, pid_of, read_tree, request, soon};

pub const TESTS: &[Test] = tests![
    a_killed_daemon_leaves_no_reader_waiting,
    a_daemon_killed_while_it_stores_pages_leaves_no_reader_waiting,
];

/// Number of deaths: `EROFS_FUSE_SOAK=500` makes it a soak test.
fn number_of_deaths() -> u64 {
    let asked = std::env::var("EROFS_FUSE_SOAK").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(20)
}

/// Mounts over both transports alternately, kills the daemon while readers run, and mounts again.
fn each_death(
    image: &Path,
    deaths: &[Death],
    mut die_under_readers: impl FnMut(Death, Pid, &Place) -> Duration,
) {
    let mut slowest = Duration::ZERO;
    let transports = ["io_uring=off", "io_uring=on"];
    let each = deaths
        .iter()
        .flat_map(|death| transports.map(|t| (death, t)));
    for (number, (death, transport)) in (1..=number_of_deaths()).zip(each.cycle()) {
        let place = Place::new();
        let options = format!("restart=off,{transport}{}", death.options());
        match mount(&request(image, &place, &options)) {
            Err(error) if transport == "io_uring=on" => {
                println!("skipped over io_uring: {error}");
                continue;
            }
            outcome => outcome.unwrap(),
        }
        let pid = pid_of(&place);
        println!("death {number} of {pid}: {death:?}, {options}");
        slowest = slowest.max(die_under_readers(*death, pid, &place));
        umount(&place.path, false).unwrap();
        mount(&request(image, &place, "")).unwrap();
        assert!(fs::read_dir(&place.path).unwrap().count() > 0);
        umount(&place.path, false).unwrap();
    }
    println!("the last reader got its error after at most {slowest:?}");
}

fn a_killed_daemon_leaves_no_reader_waiting() {
    each_death(
        &image("kitchen-sink"),
        &[Death::Killed, Death::Crashed, Death::Aborted],
        |death, pid, place| {
            let (sender, outcomes) = mpsc::channel();
            for _ in 0..16 {
                let (sender, path) = (sender.clone(), place.path.clone());
                thread::spawn(move || sender.send(read_until_it_fails(&path)));
            }
            thread::sleep(Duration::from_millis(50));
            die_and_wait(death, pid, 16, &outcomes)
        },
    );
}

/// There are eight readers, two of which map a file; the moment of the kill is random. Small reads
/// of large pclusters keep the thread that stores pages busy; that thread cannot be killed while it
/// waits for a page.
fn a_daemon_killed_while_it_stores_pages_leaves_no_reader_waiting() {
    each_death(&image("lzma-1m-dict8m"), Death::ALL, |death, pid, place| {
        let seed = pid.as_raw_nonzero().get() as u64;
        let mut random = Random::new(seed);
        let files = files(&place.path);
        let _group = death.prepare(pid);
        let mut mappers: Vec<Child> = (0..2).filter_map(|n| map_pages(&files[n])).collect();
        let (sender, outcomes) = mpsc::channel();
        for reader in 0..6 {
            let (sender, files) = (sender.clone(), files.clone());
            let random = Random::new(seed * 8 + reader);
            thread::spawn(move || sender.send(read_pages_until_it_fails(&files, random)));
        }
        thread::sleep(Duration::from_millis(100 + random.below(100) as u64));
        let took = die_and_wait(death, pid, 6, &outcomes);
        for mapper in &mut mappers {
            soon("the end of a program that maps", || {
                mapper.try_wait().unwrap().is_some()
            });
        }
        took
    });
}

/// Kills the daemon; returns the time until the last reader got its error.
fn die_and_wait(
    death: Death,
    pid: Pid,
    readers: usize,
    outcomes: &mpsc::Receiver<std::io::Error>,
) -> Duration {
    death.bring(pid);
    let begin = Instant::now();
    for _ in 0..readers {
        outcomes.recv_timeout(LONG).expect("a reader hangs");
    }
    let took = begin.elapsed();
    soon("the end of the daemon", || place::is_gone(pid));
    took
}

/// Reads all files again and again, without using the kernel's caches.
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

/// Files with many pages.
fn files(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root.join("data")).unwrap().map(Result::unwrap);
    let files: Vec<_> = entries
        .filter(|entry| entry.metadata().unwrap().len() > 100_000)
        .map(|entry| entry.path())
        .collect();
    assert!(files.len() > 1);
    files
}

fn read_pages_until_it_fails(files: &[PathBuf], mut random: Random) -> std::io::Error {
    let mut page = [0; 4096];
    let mut step = || -> std::io::Result<()> {
        let file = File::open(&files[random.below(files.len())])?;
        let pages = file.metadata()?.len() as usize / 4096;
        fadvise(&file, 0, None, Advice::Random)?;
        for _ in 0..8 {
            file.read_at(&mut page, random.below(pages) as u64 * 4096)?;
        }
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    };
    loop {
        if let Err(error) = step() {
            return error;
        }
    }
}

/// A program that touches the pages of a mapping until it gets SIGBUS.
fn map_pages(file: &Path) -> Option<Child> {
    const PROGRAM: &str = "
import mmap, os, sys
with open(sys.argv[1], 'rb') as f:
    m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
    while True:
        for at in range(0, len(m), 8192):
            m[at]
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        m.madvise(mmap.MADV_DONTNEED)
        os.statvfs(sys.argv[1])
";
    let python = Command::new("python3")
        .args(["-c", PROGRAM])
        .arg(file)
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = &python {
        println!("skipped: programs that map need python3: {error}");
    }
    python.ok()
}
