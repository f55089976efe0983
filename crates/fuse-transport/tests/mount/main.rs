//! Tests the transport under a real mount. Needs root and `/dev/fuse`; prints a line when it skips.
//!
//! The daemon is a separate process, so that it can be killed. It executes this test program with
//! the mount point in its environment.

mod memory;
#[allow(dead_code, reason = "other tests use the rest")]
mod switch;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use switch::Switch;

const DAEMON: &str = "FUSE_TRANSPORT_TEST_DAEMON";
const IO_URING: &str = "FUSE_TRANSPORT_TEST_IO_URING";

/// Far longer than anything here takes; reached only if something hangs.
const LONG: Duration = Duration::from_secs(120);

/// Not a test: the code that the daemon process runs.
#[test]
fn daemon() {
    if let Some(mountpoint) = std::env::var_os(DAEMON) {
        let ring = std::env::var(IO_URING).ok();
        memory::daemon(Path::new(&mountpoint), ring.as_deref());
    }
}

/// How requests are transported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Transport {
    DevFuse,
    IoUring,
}

/// Runs the test over each transport; prints a line for a transport that is not available.
fn with_each_transport(name: &str, test: impl Fn(Mount, Transport)) {
    if let Some(mount) = Mount::start(name, None) {
        test(mount, Transport::DevFuse);
    }
    if let Some(mount) = with_ring(name, memory::WHOLE) {
        test(mount, Transport::IoUring);
    }
}

/// A mount over io_uring whose daemon creates the rings that `ring` names.
fn with_ring(name: &str, ring: &str) -> Option<Mount> {
    let Some(switch) = Switch::new() else {
        println!(
            "skipped: over io_uring: no {}, or no right to it",
            switch::PARAMETER
        );
        return None;
    };
    if let Err(error) = fuse_transport::probe_io_uring() {
        println!("skipped: over io_uring: {error}");
        return None;
    }
    switch.set(true);
    Mount::start(name, Some(ring))
}

struct Mount {
    daemon: Child,
    output: BufReader<ChildStdout>,
    mountpoint: PathBuf,
}

impl Mount {
    /// Starts a daemon and its mount. Prints the reason and returns `None` if mounts cannot be
    /// made.
    fn start(name: &str, ring: Option<&str>) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: mounting needs root");
            return None;
        }
        if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
            println!("skipped: /dev/fuse: {error}");
            return None;
        }
        let mountpoint =
            std::env::temp_dir().join(format!("fuse-transport-{name}-{}", std::process::id()));
        fs::create_dir_all(&mountpoint).unwrap();
        let mut daemon = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "daemon", "--nocapture"])
            .env(DAEMON, &mountpoint)
            .envs(ring.map(|ring| (IO_URING, ring)))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(daemon.stdout.take().unwrap());
        let mut mount = Mount {
            daemon,
            output,
            mountpoint,
        };
        assert!(
            mount.lines().any(|line| line.ends_with("ready")),
            "the daemon did not become ready"
        );
        Some(mount)
    }

    fn lines(&mut self) -> impl Iterator<Item = String> {
        (&mut self.output).lines().map_while(Result::ok)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mountpoint.join(name)
    }

    /// Unmounts, and returns the counters that the daemon prints at its end.
    fn end(mut self) -> serde_json::Value {
        unmount_soon(&self.mountpoint);
        let counters = self.lines().find(|line| line.starts_with('{')).unwrap();
        assert!(self.daemon.wait().unwrap().success());
        serde_json::from_str(&counters).unwrap()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = unmount(&self.mountpoint, UnmountFlags::DETACH);
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = fs::remove_dir(&self.mountpoint);
    }
}

fn assert_big(bytes: &[u8], offset: u64) {
    let wrong = bytes
        .iter()
        .zip(offset..)
        .find(|(byte, at)| **byte != memory::big_byte(*at));
    assert_eq!(
        wrong,
        None,
        "first wrong byte of the {} from {offset} on",
        bytes.len()
    );
}

#[test]
fn what_programs_ask_is_answered() {
    with_each_transport("asks", |mount, _| {
        assert_eq!(fs::read(mount.path("hello")).unwrap(), b"hello, file\n");
        assert_eq!(
            fs::read_link(mount.path("link")).unwrap(),
            Path::new("hello")
        );
        assert_eq!(fs::read(mount.path("link")).unwrap(), b"hello, file\n");
        assert_eq!(
            fs::metadata(mount.path("missing")).unwrap_err().kind(),
            ErrorKind::NotFound
        );
        let meta = fs::metadata(mount.path("big")).unwrap();
        assert_eq!(
            (meta.size(), meta.mtime(), meta.mode()),
            (memory::BIG, 1_700_000_000, 0o100_644)
        );
        let mut value = [0; 64];
        let length =
            rustix::fs::getxattr(mount.path("hello"), "user.color", &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"green");
        let length = rustix::fs::listxattr(mount.path("hello"), &mut value[..]).unwrap();
        assert_eq!(&value[..length], b"user.color\0");
        let missing = rustix::fs::getxattr(mount.path("hello"), "user.none", &mut value[..]);
        assert_eq!(missing, Err(rustix::io::Errno::NODATA));
        let statfs = rustix::fs::statvfs(&mount.mountpoint).unwrap();
        assert_eq!(
            (statfs.f_blocks, statfs.f_files, statfs.f_namemax),
            (1234, 99, 255)
        );
        let counters = mount.end();
        assert!(
            counters["by_kind"]["open"].as_u64() <= Some(1),
            "OPEN is requested at most once: {counters}"
        );
    });
}

/// Three requests wait, and both threads that take requests still serve.
#[test]
fn requests_that_wait_hold_no_thread_of_the_others() {
    let Some(mut mount) = Mount::start("deferred", None) else {
        return;
    };
    let readers: Vec<_> = (0..3)
        .map(|page| {
            let path = mount.path("deferred");
            let read = thread::spawn(move || {
                let mut bytes = [0; 4096];
                let file = File::open(path).unwrap();
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
                file.read_exact_at(&mut bytes, page << 20).unwrap();
                assert_big(&bytes, page << 20);
            });
            assert!(mount.lines().any(|line| line.ends_with("waits")));
            read
        })
        .collect();
    assert_eq!(fs::read(mount.path("hello")).unwrap(), b"hello, file\n");
    for reader in readers {
        reader.join().unwrap();
    }
    let counters = mount.end();
    assert_eq!(counters["errors"], 0, "{counters}");
}

#[test]
fn directories_are_whole_with_and_without_attributes() {
    with_each_transport("directories", |mount, _| {
        for _ in 0..2 {
            let names: Vec<_> = fs::read_dir(mount.path("directory"))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            let wanted: Vec<_> = (0..memory::MANY).map(|n| format!("entry-{n:03}")).collect();
            assert_eq!(names, wanted);
            for entry in fs::read_dir(mount.path("directory")).unwrap() {
                assert_eq!(entry.unwrap().metadata().unwrap().mode(), 0o100_600);
            }
        }
        // Data that was read once stays cached.
        let counters = mount.end();
        let reads = counters["by_kind"]["readdir"].as_u64().unwrap_or(0)
            + counters["by_kind"]["readdirplus"].as_u64().unwrap_or(0);
        assert!(reads < 40, "{counters}");
    });
}

#[test]
fn nothing_can_be_written() {
    with_each_transport("writes", |mount, _| {
        for error in [
            File::create(mount.path("new")).unwrap_err(),
            fs::remove_file(mount.path("hello")).unwrap_err(),
            fs::create_dir(mount.path("new")).unwrap_err(),
            File::options()
                .write(true)
                .open(mount.path("hello"))
                .unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
        }
    });
}

#[test]
fn big_files_are_read_whole_and_in_pieces() {
    with_each_transport("big", |mount, _| {
        let bytes = fs::read(mount.path("big")).unwrap();
        assert_eq!(bytes.len() as u64, memory::BIG);
        assert_big(&bytes, 0);
        let file = File::open(mount.path("big")).unwrap();
        let mut bytes = [0; 5000];
        assert_eq!(file.read_at(&mut bytes, memory::BIG - 4000).unwrap(), 4000);
        assert_big(&bytes[..4000], memory::BIG - 4000);
    });
}

#[test]
fn holes_are_found() {
    with_each_transport("holes", |mount, _| {
        let file = File::open(mount.path("big")).unwrap();
        assert_eq!(
            rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(5)),
            Ok(1 << 20)
        );
        assert_eq!(
            rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(5)),
            Ok(5)
        );
        let mut file = file;
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), memory::BIG);
    });
}

#[test]
fn many_readers_get_the_right_bytes() {
    with_each_transport("readers", |mount, transport| {
        thread::scope(|scope| {
            for reader in 0..16u64 {
                let path = mount.path("big");
                scope.spawn(move || {
                    let file = File::open(path).unwrap();
                    let mut bytes = vec![0; 70_000];
                    for turn in 0..40u64 {
                        let offset = (reader * 40 + turn) * 7919 % (memory::BIG - 70_000);
                        file.read_exact_at(&mut bytes, offset).unwrap();
                        assert_big(&bytes, offset);
                    }
                });
            }
        });
        let counters = mount.end();
        let way = &counters["by_transport"];
        match transport {
            Transport::DevFuse => assert_eq!(way["dev_fuse"], counters["requests"]),
            // Reads are served on the CPU they come from, except for those that a busy CPU leaves
            // to the overflow queue: with 16 simultaneous readers, that queue may serve most of the
            // reads.
            Transport::IoUring => {
                assert!(
                    way["io_uring"].as_u64() >= counters["by_kind"]["read"].as_u64(),
                    "{counters}"
                );
                assert!(counters["same_cpu"].as_u64() > Some(0), "{counters}");
            }
        }
    });
}

/// Reads the pages of the file whose numbers are in `turns`, 4 KiB each, on the first CPU.
fn read_on_first_cpu(path: &Path, turns: std::ops::Range<u64>) {
    let mut only = rustix::thread::CpuSet::new();
    only.set(0);
    rustix::thread::sched_setaffinity(None, &only).unwrap();
    let file = File::open(path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    let mut bytes = vec![0; 4096];
    for offset in turns.map(|turn| turn * 4096) {
        file.read_exact_at(&mut bytes, offset).unwrap();
        assert_big(&bytes, offset);
    }
}

/// Of two simultaneous requests, the one that the overflow queue took ends last, so its entry is
/// the last to be returned.
#[test]
fn after_a_burst_requests_are_served_on_the_cpu_that_asks() {
    const SINGLE: u64 = 2000;
    let Some(mount) = with_ring("singles", memory::WHOLE) else {
        return;
    };
    thread::scope(|scope| {
        for (reader, start) in [(0, 0), (1, 1)] {
            let path = mount.path("leisurely");
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(start));
                let from = 1000 + reader * 10;
                read_on_first_cpu(&path, from..from + 3);
            });
        }
    });
    let path = mount.path("big");
    let reader = thread::spawn(move || read_on_first_cpu(&path, 0..SINGLE));
    reader.join().unwrap();
    let counters = mount.end();
    let same = counters["same_cpu"].as_u64().unwrap();
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    assert!(cpus == 1 || same * 10 >= SINGLE * 9, "{same}: {counters}");
}

/// Starts readers that wait for bytes that never come; the receiver gets the result of each.
fn stuck_readers(mount: &Mount, count: usize) -> mpsc::Receiver<std::io::Result<usize>> {
    readers(mount, "stuck", count)
}

fn readers(mount: &Mount, name: &str, count: usize) -> mpsc::Receiver<std::io::Result<usize>> {
    let (sender, outcomes) = mpsc::channel();
    for _ in 0..count {
        let (sender, path) = (sender.clone(), mount.path(name));
        thread::spawn(move || {
            let mut bytes = [0; 100];
            let outcome = File::open(path).and_then(|mut file| file.read(&mut bytes));
            let _ = sender.send(outcome);
        });
    }
    // Long enough for most readers to be waiting; readers that come later fail as well.
    thread::sleep(Duration::from_millis(200));
    outcomes
}

fn assert_all_fail(outcomes: &mpsc::Receiver<std::io::Result<usize>>, count: usize) {
    for _ in 0..count {
        let outcome = outcomes.recv_timeout(LONG).expect("a reader hangs");
        assert!(outcome.is_err(), "{outcome:?}");
    }
}

/// Unmounts, and retries while the mount is busy: the kernel may drop an aborted reader's last
/// reference a moment after the reader continues.
fn unmount_soon(mountpoint: &Path) {
    let begin = Instant::now();
    while let Err(error) = unmount(mountpoint, UnmountFlags::empty()) {
        assert!(begin.elapsed() < LONG, "{}: {error}", mountpoint.display());
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn readers_of_a_killed_daemon_get_errors_and_the_mount_can_be_taken_away() {
    with_each_transport("killed", |mut mount, _| {
        let outcomes = stuck_readers(&mount, 16);
        mount.daemon.kill().unwrap();
        assert_all_fail(&outcomes, 16);
        let after = fs::read(mount.path("hello")).unwrap_err();
        assert_eq!(
            after.raw_os_error(),
            Some(rustix::io::Errno::NOTCONN.raw_os_error())
        );
        unmount_soon(&mount.mountpoint);
        assert!(fs::read_dir(&mount.mountpoint).unwrap().next().is_none());
    });
}

/// The kernel's control files of FUSE mounts, mounted during this value's lifetime.
struct Connections(bool);

impl Connections {
    const PLACE: &str = "/sys/fs/fuse/connections";

    fn open() -> Self {
        let there = fs::read_dir(Self::PLACE).is_ok_and(|mut files| files.next().is_some());
        let flags = MountFlags::empty();
        Self(!there && mount("none", Self::PLACE, "fusectl", flags, None).is_ok())
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        if self.0 {
            let _ = unmount(Self::PLACE, UnmountFlags::DETACH);
        }
    }
}

/// The file that aborts the mount. Prints the reason and returns `None` if there is no such file.
/// The mount itself is not queried, because its server may not answer.
fn abort_file(mountpoint: &Path) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut fields = mounts.lines().map(|line| line.split(' '));
    let device = fields
        .find_map(|mut line| {
            let device = line.nth(2)?;
            (line.nth(1)? == mountpoint.to_str()?).then_some(device)
        })
        .unwrap();
    let (_, minor) = device.split_once(':').unwrap();
    let abort = Path::new(Connections::PLACE).join(minor).join("abort");
    if !abort.exists() {
        println!("skipped: {abort:?} is missing and cannot be mounted");
        return None;
    }
    Some(abort)
}

/// The kernel makes all requests wait until each queue of a ring has an entry.
#[test]
fn a_ring_that_never_becomes_whole_leaves_no_reader_stuck() {
    let _connections = Connections::open();
    for end in ["kill", "abort"] {
        let Some(mut mount) = with_ring(&format!("half-{end}"), memory::HALF) else {
            return;
        };
        let outcomes = readers(&mount, "hello", 16);
        let early = outcomes.try_recv();
        let possible = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
        if possible.trim() != "0" {
            assert!(early.is_err(), "no reader can have been served: {early:?}");
        }
        match (end, abort_file(&mount.mountpoint)) {
            ("abort", Some(abort)) => fs::write(&abort, "1").unwrap(),
            _ => mount.daemon.kill().unwrap(),
        }
        assert_all_fail(&outcomes, 16);
        unmount_soon(&mount.mountpoint);
        assert!(fs::read_dir(&mount.mountpoint).unwrap().next().is_none());
        drop(mount);
        let next = Mount::start(&format!("after-{end}"), None).unwrap();
        assert_eq!(fs::read(next.path("hello")).unwrap(), b"hello, file\n");
    }
}

#[test]
fn who_waited_for_a_ring_to_become_whole_is_served() {
    let Some(mut mount) = with_ring("late", memory::LATE) else {
        return;
    };
    let outcomes = readers(&mount, "hello", 16);
    for _ in 0..16 {
        let outcome = outcomes.recv_timeout(LONG).expect("a reader hangs");
        assert_eq!(outcome.unwrap(), b"hello, file\n".len());
    }
    // The first thread of the ring is enough to serve readers; wait until the others have started
    // too.
    assert!(mount.lines().any(|line| line.ends_with(memory::WHOLE)));
    let counters = mount.end();
    assert_eq!(counters["by_transport"]["dev_fuse"], 0, "{counters}");
}

#[test]
fn a_forced_abort_ends_readers_and_daemon() {
    with_each_transport("aborted", |mount, _| {
        let _connections = Connections::open();
        let Some(abort) = abort_file(&mount.mountpoint) else {
            return;
        };
        // The daemon's threads do not wait for this mount, which must end without help.
        assert_eq!(fs::read(mount.path("hello")).unwrap(), b"hello, file\n");
        fs::write(&abort, "1").unwrap();
        assert!(fs::read(mount.path("directory/entry-001")).is_err());
        let counters = mount.end();
        assert!(counters["requests"].as_u64() > Some(0));
    });
}
