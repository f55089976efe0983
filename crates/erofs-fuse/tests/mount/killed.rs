//! A daemon that is killed leaves nobody waiting.

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use erofs_fuse::{mount, umount};

use crate::place::{self, Place, image};
use crate::{LONG, Test, kill, pid_of, read_tree, request, soon};

pub const TESTS: &[Test] = tests![a_killed_daemon_leaves_nobody_waiting];

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
