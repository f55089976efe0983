//! A server that dies or is replaced: the next server knows the directories of the previous one.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::XattrFlags;
use rustix::process::{Pid, Signal, kill_process};

use super::{Mounts, compare, generate, images, missing, write};
use crate::common::erofast;

/// The server's process; `None` if it would not be replaced.
fn server(mount: &Path) -> Option<String> {
    let output = erofast()
        .args(["stat", "--json"])
        .arg(mount)
        .output()
        .expect("it starts");
    let counters: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let is_on = counters["restart"]["on"] == true;
    is_on.then(|| counters["pid"].to_string())
}

/// Kills the server and waits for another one; false if servers are not replaced here.
pub fn replace(mount: &Path) -> bool {
    let Some(first) = server(mount) else {
        println!("skipped: servers are not replaced here");
        return false;
    };
    let pid = first.parse().ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a number"), Signal::KILL).expect("it runs");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(120) {
        if server(mount).is_some_and(|now| now != first) {
            return true;
        }
    }
    panic!("no other server within 120 s");
}

#[test]
fn the_next_server_has_the_same_tree() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    let mut mounts = Mounts::new();
    let Some(images) = generate::images(mounts.place.path(), 3, 3) else {
        return;
    };
    let ours = mounts.erofast(&images, "default_permissions");
    let before = compare::tree(&ours);
    if !replace(&ours) {
        return;
    }
    let after = compare::tree(&ours);
    assert!(compare::differences(&after, &before).is_empty());
    let upgraded = erofast()
        .arg("upgrade")
        .arg(&ours)
        .output()
        .expect("it starts");
    assert!(upgraded.status.success(), "{upgraded:?}");
    let after = compare::tree(&ours);
    assert!(compare::differences(&after, &before).is_empty());
}

#[test]
fn listings_and_directories_go_on_after_a_death() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    let mut mounts = Mounts::new();
    let many = |tree: &Path, from: usize| {
        for number in (from..3000).step_by(2) {
            write(tree, &[(&format!("d/{number:0>60}"), "")]);
        }
        write(tree, &[(&format!("d/sub{from}/f"), "x")]);
    };
    let top = |tree: &Path| {
        many(tree, 0);
        write(tree, &[("moved/own", "x")]);
        let (path, name) = (tree.join("moved"), "trusted.overlay.redirect");
        rustix::fs::setxattr(path, name, b"/there", XattrFlags::empty()).expect("an attribute");
    };
    let base = |tree: &Path| {
        many(tree, 1);
        write(tree, &[("there/below/f", "moved")]);
    };
    let Some(images) = images(mounts.place.path(), &[&top, &base]) else {
        return;
    };
    let ours = mounts.erofast(&images, "ro");
    let redirected = fs::File::open(ours.join("moved/below")).expect("a directory");
    let mut listing = fs::read_dir(ours.join("d")).expect("a directory");
    let mut names: Vec<_> = listing
        .by_ref()
        .take(10)
        .map(|entry| entry.expect("an entry"))
        .collect();
    if !replace(&ours) {
        return;
    }
    names.extend(listing.map(|entry| entry.expect("an entry")));
    let mut names: Vec<_> = names.into_iter().map(|entry| entry.file_name()).collect();
    assert_eq!(names.len(), 3002);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3002);
    // The file's path in its image differs from its path in the tree.
    let flags = rustix::fs::OFlags::RDONLY;
    let file = rustix::fs::openat(&redirected, "f", flags, rustix::fs::Mode::empty());
    let content = std::io::read_to_string(fs::File::from(file.expect("a file")));
    assert_eq!(content.expect("its content"), "moved");
}
