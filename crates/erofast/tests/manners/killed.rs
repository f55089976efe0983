//! `erofast mount` is killed while it waits for the mount.

use std::fs;
use std::thread;
use std::time::Duration;

use super::site::{Site, fine, soon};

/// Processes whose command line names the site.
fn processes(site: &Site) -> usize {
    let name = site.directory.path().as_os_str().as_encoded_bytes();
    let lines = fs::read_dir("/proc").unwrap().flatten();
    let lines = lines.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let named = lines.filter(|line| line.windows(name.len()).any(|part| part == name));
    named.count()
}

/// The mounting process was killed before it could report; nothing may be half there.
#[test]
fn a_command_that_is_killed_leaves_a_mount_that_is_served_or_nothing() {
    let Some(site) = Site::new() else { return };
    let (mut served, mut absent) = (0, 0);
    // How long it takes differs: the steps reach from before to after the end of the command.
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
            // It may be on its way out, since it could not report.
            let umount = site.run(&["umount", "mnt"]);
            if site.is_mounted() {
                fine(&umount);
            }
            soon("the end", || !site.is_mounted() && processes(&site) == 0);
        }
    }
    println!("{served} mounts were served, {absent} were not there");
}
