//! Launches whose mount ends on a machine that is slow.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::freezer::Freezer;
use super::site::{Site, fine, soon};
use crate::profile::image_of_a_script;

/// The thread of a process with this name.
fn thread_of(pid: u64, name: &str) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let is_it = |path: &std::path::Path| {
        fs::read_to_string(path.join("comm")).is_ok_and(|found| found.trim_end() == name)
    };
    let mut found = threads.filter(|thread| is_it(&thread.path()));
    found.next()?.file_name().to_str()?.parse().ok()
}

/// The thread that learns does not run while the mount ends: others may keep all CPUs that long.
#[test]
fn a_launch_is_counted_when_its_mount_has_ended_however_late_its_thread_runs() {
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
        freezer.add_thread(thread_of(server, "erofs_learn").unwrap());
        freezer.freeze(true);
        fine(&Command::new("umount").arg(site.point()).output().unwrap());
        thread::sleep(Duration::from_secs(1));
        freezer.freeze(false);
        soon("the launch", || launches() == Some(count));
    }
    fine(&site.run(&["profile", "remove", "image.erofs"]));
}
