//! A mount keeps no descriptor and no secret that it could inherit from the program that started
//! it, and no umask that would lock it out of its own files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::site::{Site, fine, signal, soon};

/// Starts a caller that holds a lock, a writable file, and a secret in a variable.
fn caller(site: &Site, then: &str) -> Output {
    let script = format!("exec 9<>file; flock 9; {then}");
    fs::write(site.path("file"), "untouched").unwrap();
    Command::new("bash")
        .args(["-c", &script, env!("CARGO_BIN_EXE_erofast")])
        .env("SECRET", "of-the-caller")
        .current_dir(site.directory.path())
        .output()
        .unwrap()
}

pub fn counters(site: &Site) -> Value {
    let output = site.run(&["stat", "--json", "mnt"]);
    fine(&output);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn parent(pid: u64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t"));
    parent.unwrap().parse().unwrap()
}

fn children(pid: u64) -> Vec<u64> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let children = fs::read_to_string(path).unwrap();
    let numbers = children.split_whitespace().map(str::parse);
    numbers.map(Result::unwrap).collect()
}

/// A process's descriptors for a file, with the flags of each.
fn descriptors(pid: u64, to: &Path) -> Vec<String> {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let leading = open.filter(|fd| fs::read_link(fd.path()).is_ok_and(|link| link == to));
    let info = leading.map(|fd| {
        let number = fd.file_name().into_string().unwrap();
        fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).unwrap()
    });
    info.collect()
}

#[track_caller]
fn has_nothing_of_the_caller(site: &Site, what: &str, pid: u64) {
    let file = site.path("file").canonicalize().unwrap();
    assert_eq!(descriptors(pid, &file), Vec::<String>::new(), "{what}");
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    assert!(!environment.contains("SECRET"), "{what}: {environment}");
}

fn lock_is_free(site: &Site) -> bool {
    let mut flock = Command::new("flock");
    let flock = flock.arg("-n").arg(site.path("file")).arg("true");
    flock.status().unwrap().success()
}

#[test]
fn the_callers_descriptors_and_secrets_are_in_no_process_of_a_mount() {
    let Some(site) = Site::new() else { return };
    let script = "\"$0\" mount image.erofs mnt";
    fine(&caller(&site, script));
    assert!(lock_is_free(&site), "the lock is held by the mount");
    let server = site.pid();
    has_nothing_of_the_caller(&site, "server", server);
    has_nothing_of_the_caller(&site, "helper", parent(server));
    if counters(&site)["restart"]["on"] == true {
        signal("-KILL", server);
        let next = site.pid();
        assert_ne!(next, server);
        has_nothing_of_the_caller(&site, "next server", next);
        fine(&site.run(&["upgrade", "mnt"]));
        let upgraded = site.pid();
        assert_ne!(next, upgraded);
        has_nothing_of_the_caller(&site, "upgraded server", upgraded);
    }
    fine(&site.run(&["umount", "mnt"]));
}

/// In the foreground the mount helper is the caller's own process, with its environment.
#[test]
fn in_the_foreground_no_process_has_a_descriptor_of_the_caller() {
    let Some(site) = Site::new() else { return };
    let script = "exec 9>&- 8<>file; exec \"$0\" mount -f image.erofs mnt >/dev/null 2>&1 &";
    fine(&caller(&site, script));
    soon("the mount", || site.is_mounted());
    let server = site.pid();
    let file = site.path("file").canonicalize().unwrap();
    let helper = parent(server);
    let started = children(helper);
    assert!(started.contains(&server), "{started:?}");
    for pid in started.into_iter().chain([helper]) {
        assert_eq!(descriptors(pid, &file), Vec::<String>::new(), "{pid}");
    }
    fine(&site.run(&["umount", "mnt"]));
}

/// The caller opens the image for writing and passes its descriptor number.
#[test]
fn an_image_that_is_open_is_kept_to_read_only() {
    let Some(site) = Site::new() else { return };
    for options in ["restart=off", "ready_fd=8", "log=/dev/fd/7"] {
        let script = format!(
            "exec 5<>image.erofs 7>>log 8>ready; \
             \"$0\" mount -o {options} /proc/self/fd/5 mnt"
        );
        fine(&caller(&site, &script));
        assert!(fs::read_dir(site.point()).unwrap().count() > 0);
        let server = site.pid();
        let image = site.image().canonicalize().unwrap();
        let open = descriptors(server, &image);
        assert!(!open.is_empty());
        let helper = parent(server);
        let others = children(helper);
        // The other children of the helper include the companion, which was started before the
        // caller's descriptors were last used.
        for pid in others.into_iter().filter(|pid| *pid != server) {
            assert_eq!(descriptors(pid, &image), Vec::<String>::new(), "{pid}");
            let ready = site.path("ready");
            assert_eq!(descriptors(pid, &ready), Vec::<String>::new(), "{pid}");
        }
        for pid in [server, helper] {
            for info in descriptors(pid, &image) {
                let flags = info.lines().find_map(|line| line.strip_prefix("flags:\t"));
                let flags = flags.unwrap().trim();
                assert!(flags.ends_with('0'), "{options}: {pid}: {info}");
            }
        }
        if options.starts_with("ready_fd") {
            // The message of `ready_fd` may arrive before or after the command returns.
            soon("the news", || {
                fs::read(site.path("ready")).unwrap() == b"\n"
            });
        }
        fine(&site.run(&["umount", "mnt"]));
    }
}

/// A mount in the background keeps the standard streams open, so a caller that waited for the
/// message of `ready_fd` on one of them would wait until the mount ends.
#[test]
fn the_news_of_a_mount_in_the_background_goes_to_no_standard_stream() {
    let Some(site) = Site::new() else { return };
    for number in 0..3 {
        let option = format!("ready_fd={number}");
        let output = site.run(&["mount", "-o", &option, "image.erofs", "mnt"]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.contains("must be 3 or more for a background mount"),
            "{stderr}"
        );
        assert_eq!((output.status.code(), site.is_mounted()), (Some(1), false));
    }
}

#[test]
fn an_image_on_standard_input_is_mounted() {
    let Some(site) = Site::new() else { return };
    fine(&caller(&site, "\"$0\" mount /dev/stdin mnt <image.erofs"));
    assert!(fs::read_dir(site.point()).unwrap().count() > 0);
    has_nothing_of_the_caller(&site, "server", site.pid());
    fine(&site.run(&["umount", "mnt"]));
}

#[test]
fn a_log_is_open_to_its_owner_whatever_the_umask() {
    let Some(site) = Site::new() else { return };
    let script = "umask 0777; \"$0\" mount -o log=faults image.erofs mnt";
    fine(&caller(&site, script));
    fine(&site.run(&["umount", "mnt"]));
    let mode = fs::metadata(site.path("faults")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
}
