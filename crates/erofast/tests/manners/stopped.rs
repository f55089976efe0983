//! A server or a mount helper that is stopped, as by SIGSTOP, or that hangs.

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use crate::switch::{self, Switch};

use super::site::{LONG, Site, ends, fine, signal, soon};

/// A mount in the background whose server is stopped; returns the server and the mount helper.
fn stopped(site: &Site, options: &str) -> (u64, u64) {
    fine(&site.run(&["mount", "-o", options, "image.erofs", "mnt"]));
    let server = site.pid();
    let helper = parent(server);
    signal("-STOP", server);
    (server, helper)
}

fn parent(pid: u64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.unwrap().trim().parse().unwrap()
}

/// The mount tables of all processes.
fn all_mounts() -> impl Iterator<Item = String> {
    let processes = fs::read_dir("/proc").unwrap();
    processes.filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("mountinfo")).ok())
}

/// Whether a process is running; false for one that has ended but has not been waited for.
fn runs(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[test]
fn sigterm_to_the_helper_unmounts_and_ends_a_server_that_has_stopped() {
    let Some(site) = Site::new() else { return };
    for options in ["restart=on", "restart=off"] {
        let (server, helper) = stopped(&site, options);
        signal("-TERM", helper);
        soon("the unmounting", || !site.is_mounted());
        soon("the end", || !runs(server) && !runs(helper));
    }
}

#[test]
fn a_busy_mount_of_a_server_that_has_stopped_is_taken_away() {
    let Some(site) = Site::new() else { return };
    fine(&site.run(&["mount", "image.erofs", "mnt"]));
    let _user = fs::File::open(site.point()).unwrap();
    let server = site.pid();
    let helper = parent(server);
    signal("-STOP", server);
    signal("-TERM", helper);
    soon("the unmounting", || !site.is_mounted());
    soon("the end", || !runs(server) && !runs(helper));
}

/// How often the process has slept.
fn waits(pid: u64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let mut lines = status.lines();
    let waits = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    waits.unwrap().trim().parse().unwrap()
}

/// If the helper polled the device, each request would wake it.
#[test]
fn requests_do_not_wake_the_mount_helper() {
    let Some(site) = Site::new() else { return };
    fine(&site.run(&["mount", "image.erofs", "mnt"]));
    let helper = parent(site.pid());
    let before = waits(helper);
    for number in 0..200 {
        assert!(!site.point().join(number.to_string()).exists());
    }
    let woken = waits(helper) - before;
    assert!(woken < 20, "{woken} of 200");
    fine(&site.run(&["umount", "mnt"]));
}

#[test]
fn a_server_that_has_stopped_ends_when_its_mount_is_gone() {
    let Some(site) = Site::new() else { return };
    for arguments in [&["umount", "mnt"][..], &["umount", "--lazy", "mnt"]] {
        let (server, helper) = stopped(&site, "");
        fine(&site.run(arguments));
        soon("the end", || !runs(server) && !runs(helper));
    }
}

/// The kernel gives the next mount the number of the previous one, whose mount helper has not yet
/// noticed that its mount is gone.
#[test]
fn an_upgrade_of_the_next_mount_asks_its_own_helper() {
    let Some(site) = Site::new() else { return };
    let (server, helper) = stopped(&site, "");
    signal("-STOP", helper);
    fine(&site.run(&["umount", "mnt"]));
    fine(&site.run(&["mount", "image.erofs", "mnt"]));
    fine(&site.run(&["upgrade", "mnt"]));
    fine(&site.run(&["umount", "mnt"]));
    signal("-CONT", helper);
    soon("the end", || !runs(server) && !runs(helper));
}

/// Like a mount in the background, except that the foreground process is the helper.
#[test]
fn a_stopped_server_of_a_mount_in_the_foreground_ends_when_its_mount_is_gone() {
    let Some(site) = Site::new() else { return };
    let mut foreground = site.start(&["-f", "-o", "io_uring=off"]);
    let server = site.pid();
    signal("-STOP", server);
    fine(&site.run(&["umount", "mnt"]));
    soon("the end", || foreground.try_wait().unwrap().is_some());
    soon("the end of the server", || !runs(server));
}

#[test]
fn stat_of_a_server_that_has_stopped_says_so_and_ends() {
    let Some(site) = Site::new() else { return };
    let mut foreground = site.start(&["-f"]);
    stat_fails(&site);
    fine(&site.run(&["umount", "mnt"]));
    foreground.wait().unwrap();
    fine(&site.run(&["mount", "image.erofs", "mnt"]));
    stat_fails(&site);
    fine(&site.run(&["umount", "mnt"]));
}

/// No process is left to replace or end the server.
#[test]
fn a_stopped_server_without_a_helper_is_named_by_stat_and_umount() {
    let Some(site) = Site::new() else { return };
    let (server, helper) = stopped(&site, "");
    let device = site.device();
    let info = fs::read_dir(format!("/proc/{server}/fdinfo")).unwrap();
    let mut info = info.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    let is_named = info.any(|text| text.contains("fuse_connection:"));
    signal("-KILL", helper);
    soon("the end of the helper", || !runs(helper));
    let stat = ends(&mut site.command(&["stat", "mnt"]));
    let umount = ends(&mut site.command(&["umount", "mnt"]));
    let mounted = site.is_mounted();
    signal("-CONT", server);
    // The mount namespace of another test may have a copy of the mount, which keeps the server
    // running.
    let is_copied = || all_mounts().any(|mounts| mounts.contains(&format!(" {device} ")));
    let begin = Instant::now();
    while is_copied() && begin.elapsed() < 5 * LONG {
        thread::sleep(Duration::from_millis(100));
    }
    soon("the end of the server", || !runs(server));
    assert!(!mounted);
    fine(&umount);
    let [stat, umount] = [stat.stderr, umount.stderr].map(|text| String::from_utf8(text).unwrap());
    if !is_named {
        return println!("skipped: this kernel does not name connections in fdinfo");
    }
    let line = format!(
        "erofast: mnt: its server (process {server}) does not answer, and its mount helper cannot \
         be found: erofast umount unmounts it\n"
    );
    assert_eq!(stat, line);
    let line = format!(
        "erofast: mnt: unmounted; its server (process {server}) is stopped, and will end once it \
         continues: kill -CONT {server}\n"
    );
    assert_eq!(umount, line);
}

/// Stops the server and checks that `stat` fails.
#[track_caller]
fn stat_fails(site: &Site) {
    let server = site.pid();
    let remedy = match super::inherited::counters(site)["restart"]["on"] == true {
        true => "erofast upgrade mnt replaces it",
        false => "erofast umount mnt unmounts it",
    };
    signal("-STOP", server);
    let begin = Instant::now();
    let output = site.run(&["stat", "mnt"]);
    assert!(begin.elapsed() < LONG);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let expected =
        format!("erofast: mnt: its server (process {server}) does not answer: {remedy}\n");
    assert_eq!((&*stderr, output.status.code()), (&*expected, Some(1)));
    signal("-CONT", server);
}

#[test]
fn the_switch_of_io_uring_is_restored_when_the_helper_is_killed_within_the_handshake() {
    let Some(site) = Site::new() else { return };
    let Some(switch) = Switch::new() else {
        return println!("skipped: this kernel has no FUSE over io_uring");
    };
    switch.set(false);
    let mut killed = 0;
    for _ in 0..40 {
        let mut mount = site.command(&["mount", "-o", "io_uring=on", "image.erofs", "mnt"]);
        let mut mount = mount.stderr(Stdio::null()).spawn().unwrap();
        let is_set = || fs::read(switch::PARAMETER).unwrap() == b"Y\n";
        while !is_set() && mount.try_wait().unwrap().is_none() {}
        if let Some(helper) = child_of(mount.id()) {
            signal("-KILL", helper);
            killed += u32::from(!mount.wait().unwrap().success());
        }
        let _ = mount.wait();
        // Other tests that mount at the same time may turn the same switch on for a moment.
        soon("the switch is off", || !is_set());
        if site.is_mounted() {
            fine(&site.run(&["umount", "--lazy", "mnt"]));
        }
    }
    println!("{killed} mounts failed, since their helper was killed");
}

/// The child of a single-threaded process, if it has one.
fn child_of(pid: u32) -> Option<u64> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_ascii_whitespace().next()?.parse().ok()
}

#[test]
fn files_of_verity_that_are_pipes_are_refused_at_once() {
    let Some(site) = Site::new() else { return };
    rustix::fs::mkfifoat(
        rustix::fs::CWD,
        site.path("pipe"),
        rustix::fs::Mode::from_raw_mode(0o600),
    )
    .unwrap();
    let hash = format!("verity.roothash={},verity.roothashsig=pipe", "0".repeat(64));
    for options in ["verity.roothashfile=pipe", &hash] {
        for foreground in [&[][..], &["-f"]] {
            let arguments = [
                &["mount", "-o", options],
                foreground,
                &["image.erofs", "mnt"],
            ];
            let output = site.run(&arguments.concat());
            let stderr = String::from_utf8_lossy(&output.stderr);
            let line = "pipe: not a regular file\n";
            assert!(
                stderr.ends_with(line) && stderr.lines().count() == 1,
                "{stderr}"
            );
            assert_eq!(output.status.code(), Some(1));
        }
    }
}
