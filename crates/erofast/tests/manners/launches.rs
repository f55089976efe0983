//! Launches whose mount ends while other programs keep the CPUs busy.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::freezer::Freezer;
use super::site::{Site, fine, soon};
use crate::profile::image_of_a_script;

/// The companion of a mount, which has the same parent as its server.
fn companion_of(server: u64) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{server}/status")).ok()?;
    let parent = status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))?
        .trim();
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let is_it = |pid: &&str| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|found| found.trim_end() == "erofs_companion")
    };
    children.split_whitespace().find(is_it)?.parse().ok()
}

/// With `profile=off`, nothing would be learned from the launch, and a companion would only take
/// CPU time from it.
#[test]
fn a_launch_starts_no_companion_with_profile_off() {
    let Some(site) = Site::new() else { return };
    image_of_a_script(&site.image());
    fine(&site.run(&["mount", "-o", "profile=off", "image.erofs", "mnt"]));
    let server = site.pid();
    fs::read(site.point().join("script")).unwrap();
    // If the mount helper is woken at all, this happens immediately.
    thread::sleep(Duration::from_secs(1));
    assert_eq!(companion_of(server), None);
    fine(&Command::new("umount").arg(site.point()).output().unwrap());
}

/// The companion does not run while the mount ends, as if other programs kept all CPUs busy.
#[test]
fn a_launch_is_counted_when_its_mount_has_ended_however_late_its_companion_runs() {
    let Some(site) = Site::new() else { return };
    let Some(freezer) = Freezer::new(false, "learning") else {
        return;
    };
    image_of_a_script(&site.image());
    let launches = || {
        let listed = site.run(&["profile", "list", "--json", "image.erofs"]);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
        listed["images"][0]["programs"][0]["launches"].as_u64()
    };
    for count in 1..3 {
        fine(&site.run(&["mount", "-o", "profile=learn", "image.erofs", "mnt"]));
        let server = site.pid();
        fs::read(site.point().join("script")).unwrap();
        freezer.add_thread(companion_of(server).unwrap());
        freezer.freeze(true);
        fine(&Command::new("umount").arg(site.point()).output().unwrap());
        thread::sleep(Duration::from_secs(1));
        freezer.freeze(false);
        soon("the launch", || launches() == Some(count));
    }
    fine(&site.run(&["profile", "remove", "image.erofs"]));
}

/// The companion uses a copy of the mount, which does not keep the mount busy.
#[test]
fn a_busy_mount_names_only_programs_that_are_not_its_own() {
    let Some(site) = Site::new() else { return };
    image_of_a_script(&site.image());
    fine(&site.run(&["mount", "-o", "profile=learn", "image.erofs", "mnt"]));
    let device = fs::metadata(site.point()).unwrap().dev();
    fs::read(site.point().join("script")).unwrap();
    let companion = companion_of(site.pid()).unwrap();
    let uses = || {
        let process = Path::new("/proc").join(companion.to_string());
        let open = fs::read_dir(process.join("fd")).into_iter().flatten();
        let open = open.flatten().map(|entry| entry.path());
        let mut all = open.chain([process.join("cwd"), process.join("root")]);
        all.any(|path| fs::metadata(path).is_ok_and(|found| found.dev() == device))
    };
    soon("the copy of the mount", || {
        uses() || companion_of(site.pid()) != Some(companion)
    });
    let mut user = Command::new("sleep");
    let mut user = user.arg("300").current_dir(site.point()).spawn().unwrap();
    let busy = site.run(&["umount", "mnt"]);
    user.kill().unwrap();
    user.wait().unwrap();
    let stderr = String::from_utf8_lossy(&busy.stderr);
    let named = format!("mnt: in use by sleep ({});", user.id());
    assert!(stderr.contains(&named), "{stderr}");
    fine(&site.run(&["umount", "mnt"]));
    fine(&site.run(&["profile", "remove", "image.erofs"]));
}
