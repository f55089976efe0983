//! Where an image is mounted.

use std::fs;
use std::process::{Command, Stdio};

use super::site::{Site, fine, signal, soon};

/// Number of mounts at the site's mount point, according to `/proc/self/mounts`.
fn mounted(site: &Site) -> usize {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let here = site.point();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    points.filter(|point| here.to_str() == Some(point)).count()
}

/// Number of processes whose command line contains this word.
fn processes_of(word: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let has = |line: &Vec<u8>| {
        line.split(|byte| *byte == 0)
            .any(|part| part == word.as_bytes())
    };
    lines.filter(has).count()
}

#[test]
fn mounts_that_come_to_one_place_at_once_are_each_their_own() {
    const MOUNTS: usize = 4;
    let Some(site) = Site::new() else { return };
    let point = site.point().to_str().unwrap().to_owned();
    for _ in 0..8 {
        let start = |_| {
            let mut command = site.command(&["mount", "image.erofs", &point]);
            command.stderr(Stdio::null()).spawn().unwrap()
        };
        let mut started: Vec<_> = (0..MOUNTS).map(start).collect();
        for child in &mut started {
            assert!(child.wait().unwrap().success());
        }
        assert_eq!(mounted(&site), MOUNTS);
        // Each server unmounts its own mount.
        for left in (0..MOUNTS).rev() {
            signal("-TERM", site.pid());
            soon("the end of the topmost", || mounted(&site) == left);
        }
        soon("the end of all processes", || processes_of(&point) == 0);
    }
}

#[test]
fn the_root_directory_is_no_mount_point() {
    let Some(site) = Site::new() else { return };
    let script = "\"$0\" mount image.erofs /; echo $?; grep -c fuse.erofast /proc/self/mounts";
    let output = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", script])
        .arg(env!("CARGO_BIN_EXE_erofast"))
        .current_dir(site.directory.path())
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.starts_with("unshare:") {
        println!("skipped: {stderr}");
        return;
    }
    assert!(
        stderr.starts_with("erofast: /: the root directory"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.starts_with("1\n"), "{stdout}");
}

/// The path is longer than a value of fsconfig(2) may be.
#[test]
fn an_image_with_a_long_path_is_mounted() {
    let Some(site) = Site::new() else { return };
    let folder = site.path(&"long".repeat(50)).join("path".repeat(50));
    fs::create_dir_all(&folder).unwrap();
    let image = folder.join("image.erofs");
    fs::copy(site.image(), &image).unwrap();
    let image = image.to_str().unwrap();
    fine(&site.run(&["mount", image, "mnt"]));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(mounts.contains(&format!("{image} ")), "{mounts}");
    fine(&site.run(&["umount", "mnt"]));
    assert!(!site.is_mounted());
}
