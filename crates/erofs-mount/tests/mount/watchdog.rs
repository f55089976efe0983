//! Ends the whole run if one test hangs, and shows where each process of a mount is waiting.
//! Otherwise a reader that hangs, which cannot be killed, would keep the caller of the tests
//! waiting.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::switch::PARAMETER;

/// Longer than any test takes, except the soak tests.
const LIMIT: Duration = Duration::from_secs(400);

pub struct Watchdog(Arc<Mutex<(&'static str, Instant)>>);

impl Watchdog {
    pub fn begin(&self, test: &'static str) {
        *self.0.lock().unwrap() = (test, Instant::now());
    }
}

/// Starts the watchdog, without a limit if the environment asks tests to run longer.
pub fn start() -> Watchdog {
    let current = Arc::new(Mutex::new(("", Instant::now())));
    let watched = Arc::clone(&current);
    if std::env::var_os("EROFS_FUSE_SOAK").is_none() {
        let uring = fs::read(PARAMETER).ok();
        thread::spawn(move || {
            loop {
                thread::sleep(Duration::from_secs(1));
                let (test, begin) = *watched.lock().unwrap();
                if begin.elapsed() > LIMIT {
                    show_processes();
                    end_mounts();
                    // A test may have changed the parameter.
                    let _ = uring.map(|before| fs::write(PARAMETER, before));
                    println!("test {test} ... FAILED: it hangs");
                    sys::fork::exit_now(1);
                }
            }
        });
    }
    Watchdog(current)
}

/// Shows all processes that may be involved: this program, those started from it, and the readers.
fn show_processes() {
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(threads) = fs::read_dir(process.path().join("task")) else {
            continue;
        };
        for thread in threads.flatten() {
            let read = |file: &str| fs::read_to_string(thread.path().join(file));
            let status = read("stat").unwrap_or_default();
            let stack = read("stack").unwrap_or_default();
            if status.contains("mount") || status.contains("erofs") || stack.contains("fuse") {
                let wchan = read("wchan").unwrap_or_default();
                println!("{status}  waits in {wchan}\n{stack}");
            }
        }
    }
    let connections = Path::new("/sys/fs/fuse/connections");
    for connection in fs::read_dir(connections).into_iter().flatten().flatten() {
        let waiting = fs::read_to_string(connection.path().join("waiting"));
        println!("{:?}: requests that wait: {waiting:?}", connection.path());
    }
}

/// Aborts and unmounts all mounts of this process, so that readers end.
fn end_mounts() {
    let own = format!("/erofs-mount-test-{}-", std::process::id());
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for line in table.lines().filter(|line| line.contains(&own)) {
        // proc(5): the third field is MAJOR:MINOR, the fifth the mount point.
        let fields: Vec<&str> = line.split(' ').collect();
        let number = fields[2].rsplit(':').next().unwrap_or_default();
        let _ = fs::write(format!("/sys/fs/fuse/connections/{number}/abort"), "1");
        let _ = rustix::mount::unmount(fields[4], rustix::mount::UnmountFlags::DETACH);
    }
}
