//! `erofast mount` is killed while it waits for the mount.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::site::{Site, fine, signal, soon};

/// Number of processes whose command line contains the site's path.
pub fn processes(site: &Site) -> usize {
    let name = site.directory.path().as_os_str().as_encoded_bytes();
    let lines = fs::read_dir("/proc").unwrap().flatten();
    let lines = lines.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let named = lines.filter(|line| line.windows(name.len()).any(|part| part == name));
    named.count()
}

/// An unresponsive image server must not block a user at the terminal.
#[test]
fn in_the_foreground_a_signal_ends_it_while_the_image_is_opened() {
    let Some(site) = Site::new() else { return };
    // Replaces the fetcher, which is searched for beside the program. Another process writes it,
    // because a fork of this one could hold it open and prevent its execution.
    let make = r#"cp "$0" erofast; printf '#!/bin/sh\necho $$ >pid\nexec sleep 300\n' >erofast-fetch
        chmod +x erofast-fetch"#;
    let mut sh = Command::new("sh");
    sh.args(["-c", make, env!("CARGO_BIN_EXE_erofast")]);
    let made = sh.current_dir(site.directory.path()).status();
    assert!(made.unwrap().success());
    let mut mount = Command::new(site.path("erofast"));
    mount.args(["mount", "-f", "http://127.0.0.1:1/a.erofs", "mnt"]);
    let mut mount = mount.current_dir(site.directory.path()).spawn().unwrap();
    let pid = || {
        fs::read_to_string(site.path("pid"))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    soon("the fetcher", || pid().is_some());
    // SIGTERM rather than SIGINT, which programs started by shells in the background ignore.
    signal("-TERM", u64::from(mount.id()));
    let ended = mount.wait().unwrap();
    assert_eq!(
        ended.signal(),
        Some(rustix::process::Signal::TERM.as_raw()),
        "{ended}"
    );
    soon("the end", || processes(&site) == 0);
    let pid: u32 = pid().unwrap();
    soon("the fetcher's end", || {
        fs::metadata(format!("/proc/{pid}")).is_err()
    });
    assert!(!site.is_mounted());
}

/// The mounting process is killed before it can report; nothing may be left incomplete.
#[test]
fn a_command_that_is_killed_leaves_a_mount_that_is_served_or_nothing() {
    let Some(site) = Site::new() else { return };
    let (mut served, mut absent) = (0, 0);
    // How long the command takes varies, so it is killed at times that range from before its end to
    // after it.
    for step in 0..60 {
        let mut mount = site
            .command(&["mount", "image.erofs", "mnt"])
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(step * 2));
        let _ = mount.kill();
        mount.wait().unwrap();
        let mut is_served = false;
        soon("a mount or nothing", || {
            is_served = site.is_mounted() && site.run(&["stat", "mnt"]).status.success();
            is_served || (!site.is_mounted() && processes(&site) == 0)
        });
        match is_served {
            true => served += 1,
            false => absent += 1,
        }
        if is_served {
            // The mount may be about to end, because it could not report to the killed command.
            let umount = site.run(&["umount", "mnt"]);
            if site.is_mounted() {
                fine(&umount);
            }
            soon("the end", || !site.is_mounted() && processes(&site) == 0);
        }
    }
    println!("{served} mounts were served, {absent} did not exist");
}
