//! A mount from its beginning to its end.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use erofs_mount::{MountOptions, MountRequest, mount, stat, umount};

use crate::place::{self, Place, image};
use crate::switch::{Switch, is_on};
use crate::{Test, kill, manifest, mounted, pid_of, read_tree, request, soon};

pub const TESTS: &[Test] = tests![
    a_daemon_serves_when_mount_returns,
    what_goes_wrong_is_one_line_and_leaves_nothing,
    counters_keep_the_names_of_the_contract,
    umount_distinguishes_busy_from_foreign_from_nothing,
    what_a_mount_itself_needs_is_no_mount_point,
    a_signal_unmounts_and_ends,
    a_signal_to_the_mount_helper_unmounts_and_ends,
    auto_unmount_outlives_the_daemon,
    auto_unmount_outlives_all_processes_of_a_mount,
    io_uring_serves_on_the_cpu_that_asks,
    after_bursts_io_uring_serves_on_the_cpu_that_asks,
    over_the_device_same_cpu_is_counted_too,
    the_overflow_queue_has_the_priority_of_the_workers,
    a_mount_has_as_many_threads_as_cpus_and_a_few_others,
    subdir_and_owner_change_what_is_seen,
    an_idle_mount_goes_away,
    an_idle_mount_does_not_go_away_before_its_timeout,
    read_ahead_is_as_it_was_asked_for,
    read_ahead_is_one_request_while_other_programs_keep_the_cpus_busy,
    every_image_is_seen_as_its_manifest_says,
];

fn a_daemon_serves_when_mount_returns() {
    for workers in ["percpu", "unbound", "inline"] {
        let place = mounted("lz4-4k", &format!("workers={workers}"));
        assert!(fs::read_dir(&place.path).unwrap().count() > 3);
        let line = place.mount_line().unwrap();
        assert!(line.contains(" fuse.erofast ro,"), "{line}");
        umount(&place.path, false).unwrap();
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
    let place = mounted("lz4-4k", "workers=percpu,reserved_pages=16,nohipri");
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

fn umount_distinguishes_busy_from_foreign_from_nothing() {
    let place = mounted("lz4-4k", "");
    let inside = File::open(place.path.join("text")).unwrap();
    // Give the file to another process, because the process that unmounts is never named.
    let mut user = Command::new("sleep")
        .arg("60")
        .stdin(inside)
        .spawn()
        .unwrap();
    let error = umount(&place.path, false).unwrap_err().to_string();
    let named = format!(": in use by sleep ({})", user.id());
    user.kill().unwrap();
    user.wait().unwrap();
    assert!(error.contains(&named), "{error}");
    umount(&place.path, false).unwrap();
    let error = umount(&place.path, false).unwrap_err().to_string();
    assert!(error.contains(": not a mount point"), "{error}");
    let error = umount(&place.path.join("none"), false).unwrap_err();
    assert!(error.to_string().contains("no such directory"), "{error}");
    let error = umount(Path::new("/proc"), false).unwrap_err().to_string();
    assert!(error.contains("type proc"), "{error}");
}

/// If an image were mounted on `/proc` or below `/sys`, the mount's own processes would read that
/// mount before it is served.
fn what_a_mount_itself_needs_is_no_mount_point() {
    for path in ["/proc", "/sys/kernel"] {
        let request = MountRequest {
            image: image("lz4-4k"),
            mountpoint: path.into(),
            options: MountOptions::parse(&["silent"]).unwrap(),
            foreground: false,
        };
        let error = mount(&request).unwrap_err().to_string();
        assert!(error.contains("that the mount itself needs"), "{error}");
    }
}

fn a_signal_unmounts_and_ends() {
    let place = mounted("lz4-4k", "");
    let pid = pid_of(&place);
    kill(pid, rustix::process::Signal::TERM);
    soon("the unmounting", || place.mount_line().is_none());
    soon("the end of the daemon", || place::is_gone(pid));
}

fn a_signal_to_the_mount_helper_unmounts_and_ends() {
    use rustix::process::Signal;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let place = mounted("lz4-4k", "");
        let server = pid_of(&place);
        let helper = parent_of(server);
        kill(helper, signal);
        soon("the unmounting", || place.mount_line().is_none());
        soon("the end of the server", || place::is_gone(server));
        soon("the end of the helper", || place::is_gone(helper));
    }
}

fn auto_unmount_outlives_the_daemon() {
    let place = mounted("lz4-4k", "auto_unmount,restart=off");
    let pid = pid_of(&place);
    kill(pid, rustix::process::Signal::KILL);
    soon("the unmounting", || place.mount_line().is_none());
}

/// Once the other processes of the mount are dead, only the watcher, which waits for their end, is
/// left to unmount.
fn auto_unmount_outlives_all_processes_of_a_mount() {
    use rustix::process::Signal;
    for (number, options) in ["", ",restart=off", ",io_uring=on"]
        .iter()
        .cycle()
        .take(9)
        .enumerate()
    {
        let options = format!("auto_unmount{options}");
        let Some(place) = crate::mounted_or_skipped("lz4-4k", &options) else {
            continue;
        };
        let server = pid_of(&place);
        let helper = parent_of(server);
        let ended = Arc::new(AtomicBool::new(false));
        let reader = {
            let (path, ended) = (place.path.clone(), Arc::clone(&ended));
            std::thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let _ = crate::read_tree(&path);
                }
            })
        };
        let order = match number % 2 {
            0 => [helper, server],
            _ => [server, helper],
        };
        // Stop the helper, so that it is dead before it can replace the server or notice its death.
        kill(helper, Signal::STOP);
        order.into_iter().for_each(|pid| kill(pid, Signal::KILL));
        soon("the unmounting", || place.mount_line().is_none());
        soon("the end of the server", || place::is_gone(server));
        ended.store(true, Ordering::Relaxed);
        soon("the end of the reader", || reader.is_finished());
    }
    // The death of the helper alone is not a reason to unmount.
    let place = mounted("lz4-4k", "auto_unmount");
    let server = pid_of(&place);
    kill(parent_of(server), Signal::KILL);
    let is_alone = || stat(&place.path).unwrap()["restart"]["on"] == false;
    soon("the death of the helper", is_alone);
    crate::read_tree(&place.path).unwrap();
    kill(server, Signal::KILL);
    soon("the unmounting", || place.mount_line().is_none());
    // The watcher is gone once the mount is unmounted.
    let place = mounted("lz4-4k", "auto_unmount");
    let watchers = || processes_named("erofs_unmount", &place);
    assert_eq!(watchers(), 1);
    umount(&place.path, false).unwrap();
    soon("the end of the watcher", || watchers() == 0);
}

/// The number of processes with this name that belong to a mount.
fn processes_named(name: &str, place: &Place) -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let here = place.path.as_os_str().as_encoded_bytes();
    let is_one = |process: &fs::DirEntry| {
        let read = |file| fs::read(process.path().join(file)).unwrap_or_default();
        let line = read("cmdline");
        read("comm").trim_ascii_end() == name.as_bytes()
            && line
                .split(|byte| *byte == 0)
                .any(|argument| argument == here)
    };
    processes.filter(is_one).count()
}

pub fn parent_of(pid: rustix::process::Pid) -> rustix::process::Pid {
    let status = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    let (_, behind_name) = status.rsplit_once(") ").unwrap();
    let parent = behind_name.split(' ').nth(1).unwrap().parse().unwrap();
    rustix::process::Pid::from_raw(parent).unwrap()
}

fn io_uring_serves_on_the_cpu_that_asks() {
    let switch = Switch::new();
    let before = switch.as_ref().map(|_| is_on());
    let place = Place::new();
    let request = request(&image("lz4-4k"), &place, "io_uring=on,workers=percpu");
    if let Err(error) = mount(&request) {
        assert!(error.to_string().contains("io_uring"), "{error}");
        println!("skipped: {error}");
        return;
    }
    assert_eq!(Some(is_on()), before, "the parameter is restored");
    drop(switch);
    read_tree(&place.path).unwrap();
    let counters = stat(&place.path).unwrap();
    assert_eq!(counters["transport"], "io_uring");
    let of = |field: &str| counters[field].as_u64().unwrap();
    // A busy CPU may leave some requests to the overflow queue.
    assert!(of("same_cpu") * 2 > of("requests"), "{counters}");
    assert_eq!(
        counters["fuse"]["cpu_unknown"],
        counters["fuse"]["by_transport"]["dev_fuse"]
    );
    umount(&place.path, false).unwrap();
}

fn pin_to_first_cpu() {
    let mut only = rustix::thread::CpuSet::new();
    only.set(0);
    rustix::thread::sched_setaffinity(None, &only).unwrap();
}

/// Looks up names that do not exist, each once, sequentially, on the first CPU.
fn ask_on_first_cpu(place: &Place, names: &str, count: u32) {
    pin_to_first_cpu();
    for number in 0..count {
        assert!(fs::metadata(place.path.join(format!("{names}-{number}"))).is_err());
    }
}

/// Counts `(same_cpu, other_cpu)` while `work` runs on a separate thread.
fn served(place: &Place, work: impl Fn() + Sync) -> (u64, u64) {
    let count = || {
        let fuse = &stat(&place.path).unwrap()["fuse"];
        ["same_cpu", "other_cpu"].map(|field| fuse[field].as_u64().unwrap())
    };
    let before = count();
    thread::scope(|scope| drop(scope.spawn(&work)));
    let after = count();
    (after[0] - before[0], after[1] - before[1])
}

/// In a burst the overflow queue takes some requests. Later single requests must not go to the
/// thread of that queue just because the entry of that queue was returned last.
fn after_bursts_io_uring_serves_on_the_cpu_that_asks() {
    let Some(place) = crate::mounted_or_skipped("lz4-4k", "io_uring=on,workers=percpu") else {
        return;
    };
    let has_cpus = thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
    served(&place, || {
        pin_to_first_cpu();
        read_tree(&place.path).unwrap();
    });
    let (mut same, mut other) = (0, 0);
    for round in 0..10 {
        thread::scope(|scope| {
            for reader in 0..4 {
                let place = &place;
                scope.spawn(move || ask_on_first_cpu(place, &format!("{round}-{reader}"), 20));
            }
        });
        let alone = served(&place, || {
            ask_on_first_cpu(&place, &format!("{round}"), 100)
        });
        (same, other) = (same + alone.0, other + alone.1);
    }
    assert!(same + other >= 1000, "{same}, {other}");
    assert!(!has_cpus || same >= other * 9, "{same} of {}", same + other);
    umount(&place.path, false).unwrap();
}

/// These counters are based on samples of the reader's CPU.
fn over_the_device_same_cpu_is_counted_too() {
    let place = mounted("lz4-4k", "workers=percpu");
    let (same, other) = served(&place, || ask_on_first_cpu(&place, "none", 300));
    let several = stat(&place.path).unwrap()["workers"]
        .as_array()
        .unwrap()
        .len()
        > 1;
    assert!(!several || same + other > 0, "{same}, {other}");
    // Reading the counters is a request too.
    assert!(same + other <= 302, "{same}, {other}");
    umount(&place.path, false).unwrap();
}

fn a_mount_has_as_many_threads_as_cpus_and_a_few_others() {
    for (options, others) in [("io_uring=off", 4), ("io_uring=on", 5)] {
        let Some(place) = crate::mounted_or_skipped("lz4-4k", options) else {
            continue;
        };
        let workers = stat(&place.path).unwrap()["workers"].clone();
        let cpus = workers.as_array().unwrap().len();
        let pid = pid_of(&place).as_raw_nonzero();
        let names: Vec<_> = fs::read_dir(format!("/proc/{pid}/task"))
            .unwrap()
            .map(|task| fs::read_to_string(task.unwrap().path().join("comm")).unwrap())
            .collect();
        let helper = 1;
        assert!(
            names.len() + helper <= cpus + others,
            "{options}: {cpus} workers, {names:?}"
        );
        umount(&place.path, false).unwrap();
    }
}

fn the_overflow_queue_has_the_priority_of_the_workers() {
    for options in ["nohipri", "hipri=auto", "hipri"] {
        let options = format!("io_uring=on,workers=percpu,{options}");
        let Some(place) = crate::mounted_or_skipped("lz4-4k", &options) else {
            return;
        };
        let pid = pid_of(&place).as_raw_nonzero();
        let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let named = |task: &fs::DirEntry| {
            let name = fs::read_to_string(task.path().join("comm")).unwrap();
            name.trim() == "erofs_overflow"
        };
        let overflow = threads.flatten().find(named).unwrap();
        let tid: i32 = overflow.file_name().to_str().unwrap().parse().unwrap();
        let workers = || stat(&place.path).unwrap()["workers"][0]["policy"].clone();
        let same = || match sys::sched::policy(tid).unwrap() {
            sys::sched::Policy::Fifo(_) => workers().as_str().unwrap().starts_with("fifo"),
            _ => !workers().as_str().unwrap().starts_with("fifo"),
        };
        // A worker takes requests once its entries are registered.
        soon(&format!("{options}: {}", workers()), same);
        umount(&place.path, false).unwrap();
    }
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

fn read_ahead_is_as_it_was_asked_for() {
    // While the CPUs are busy, the window is half as large and consists of one request, unless an
    // option sets the window.
    let by_default = ["512", "256"];
    for (options, kib) in [
        ("", &by_default[..]),
        ("io_uring=on", &["512"]),
        ("read_ahead_kb=384", &["384"]),
    ] {
        let place = Place::new();
        if let Err(error) = mount(&request(&image("lz4-4k"), &place, options)) {
            assert!(error.to_string().contains("io_uring"), "{error}");
            println!("skipped: {error}");
            continue;
        }
        let window = read_ahead_kb(&place);
        assert!(kib.contains(&&*window), "{options}: {window}");
        umount(&place.path, false).unwrap();
    }
}

fn read_ahead_kb(place: &Place) -> String {
    use std::os::unix::fs::MetadataExt;
    let device = fs::metadata(&place.path).unwrap().dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    fs::read_to_string(&path).unwrap().trim().to_owned()
}

/// Reading ahead in two requests serves a program sooner while CPUs are idle, but if none is idle,
/// the program loses its CPU twice instead of once.
fn read_ahead_is_one_request_while_other_programs_keep_the_cpus_busy() {
    let places = ["", "read_ahead_kb=512"].map(|options| {
        let place = mounted("lz4-4k", options);
        assert!(["512", "256"].contains(&&*read_ahead_kb(&place)));
        place
    });
    let stop = std::sync::atomic::AtomicBool::new(false);
    let is_over = || stop.load(std::sync::atomic::Ordering::Relaxed);
    let threads = thread::available_parallelism().map_or(2, usize::from) * 3;
    thread::scope(|scope| {
        (0..threads).for_each(|_| {
            scope.spawn(|| while !is_over() {});
        });
        let mut number = 0;
        // The server notices the load only while it serves requests.
        let mut ask = || {
            number += 1;
            places.each_ref().map(|place| {
                let absent = place.path.join(format!("absent{number}"));
                assert!(absent.symlink_metadata().is_err());
                read_ahead_kb(place)
            })
        };
        let begin = std::time::Instant::now();
        let mut seen = ask();
        while seen != ["256", "512"] && begin.elapsed() < Duration::from_secs(60) {
            seen = ask();
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(seen, ["256", "512"]);
    });
    // To check that an idle machine gets two requests would need a quiet machine, which a test
    // cannot count on.
}

fn an_idle_mount_goes_away() {
    let place = mounted("lz4-4k", "timeout=1");
    let inside = File::open(place.path.join("text")).unwrap();
    thread::sleep(Duration::from_millis(1500));
    assert!(place.mount_line().is_some(), "it is in use");
    drop(inside);
    soon("the unmounting", || place.mount_line().is_none());
}

/// How soon the mount goes away after its timeout is tested in `serve/wait.rs`, where the test
/// controls the clock.
fn an_idle_mount_does_not_go_away_before_its_timeout() {
    let place = mounted("lz4-4k", "timeout=6");
    let begin = std::time::Instant::now();
    soon("the unmounting", || place.mount_line().is_none());
    assert!(begin.elapsed() >= Duration::from_secs(5), "before its time");
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
        umount(&place.path, false).unwrap();
        seen += 1;
    }
    println!("{seen} images read correctly, {refused} refused");
    assert!(seen > 0);
}
