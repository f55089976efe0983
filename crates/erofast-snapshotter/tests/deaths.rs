//! The snapshotter, servers and fetchers are killed at random moments while the layer is being
//! read.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tonic::Code;

use crate::node::{Labels, Node, Site, labels, mounts};

/// Number of kills: the value of `EROFAST_SNAPSHOTTER_KILLS`, or 12.
fn kills() -> u64 {
    let asked = std::env::var("EROFAST_SNAPSHOTTER_KILLS").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(12)
}

#[test]
fn no_reader_notices_kills_and_no_mount_and_no_snapshot_is_left_or_lost() {
    if !mounts() {
        return;
    }
    let (site, mut node) = (Site::new(), Node::started());
    assert!(node.pull("k/1/a", "", "sha256:c", &site.image(), &site.digest));
    let point = node.points()[0].clone();
    let (ended, reads) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|threads| {
        threads.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                site.compare(&point);
                reads.fetch_add(1, Ordering::Relaxed);
            }
        });
        let stop = Ends(&ended);
        for round in 0..kills() {
            churn(&mut node, &site, round);
            kill_of_mount(&point, round % 2 == 0);
        }
        drop(stop);
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
    node.cleanup();
    let mut known = 0;
    for info in node.list() {
        known += usize::from(info.name == "sha256:c");
    }
    assert_eq!(known, 1);
    assert_eq!(node.points().len(), 1, "one layer, one mount");
    // Remove the containers, which are stacked on the layer, before the layer.
    let mut names = node.names();
    names.sort_by_key(|name| name.starts_with("sha256:"));
    for name in names {
        node.remove(&name).unwrap();
    }
    assert_eq!(node.points().len(), 0);
    for folder in ["root/layers", "root/snapshots"] {
        assert_eq!(
            fs::read_dir(node.path(folder)).unwrap().count(),
            0,
            "{folder}"
        );
    }
}

/// Ends the reader even if the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Makes calls, one of which is cut off by a kill; everything reported as existing must exist
/// afterwards.
fn churn(node: &mut Node, site: &Site, round: u64) {
    let mut said: Vec<String> = Vec::new();
    let pid = node.pid();
    let moment = Duration::from_micros(round.wrapping_mul(7919) % 60 * 1000);
    let killer = thread::spawn(move || {
        thread::sleep(moment);
        let pid = Pid::from_raw(pid.cast_signed()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    });
    for step in 0.. {
        let key = format!("c-{round}-{step}");
        let asked = match step % 3 {
            0 => {
                let labels = labels(
                    &format!("sha256:{round}-{step}"),
                    &site.image(),
                    &site.digest,
                );
                node.prepare(&key, "sha256:c", &labels).map(drop)
            }
            1 => node.prepare(&key, "sha256:c", &Labels::new()).map(drop),
            _ => node.remove(&said.pop().unwrap_or_default()).or(Ok(())),
        };
        match asked {
            Ok(()) if step % 3 == 1 => said.push(key),
            Ok(()) => {}
            Err(status) if status.code() == Code::AlreadyExists => {
                said.push(format!("sha256:{round}-{step}"));
            }
            Err(_) => break,
        }
    }
    killer.join().unwrap();
    node.restart();
    let names = node.names();
    for name in said {
        assert!(names.contains(&name), "{name} is lost: {names:?}");
        if name.starts_with("c-") {
            node.mounts(&name).unwrap();
        }
    }
}

/// Kills the server of a mount, or its fetcher. The mount helper stays: it replaces both.
fn kill_of_mount(point: &Path, server: bool) {
    let stat = |pid: i32| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let parent = |pid: i32| {
        let stat = stat(pid);
        let (_, fields) = stat.rsplit_once(") ")?;
        fields.split(' ').nth(1)?.parse::<i32>().ok()
    };
    let of_mount = processes(point);
    let helper = of_mount.iter().find(|pid| {
        let parent = parent(**pid);
        parent.is_none_or(|parent| !of_mount.contains(&parent))
    });
    let Some(helper) = helper else {
        panic!("{} has no helper: {of_mount:?}", point.display());
    };
    let children = format!("/proc/{helper}/task/{helper}/children");
    let children = fs::read_to_string(children).unwrap_or_default();
    for child in children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
    {
        let is_server = of_mount.contains(&child);
        let is_fetcher = stat(child).contains("(erofast-fetch)");
        if if server { is_server } else { is_fetcher } {
            let _ = kill_process(Pid::from_raw(child).unwrap(), Signal::KILL);
        }
    }
}

/// The processes that have the mount point among their arguments.
pub fn processes(point: &Path) -> Vec<i32> {
    let name = point.as_os_str().as_encoded_bytes();
    let all = fs::read_dir("/proc").unwrap().flatten().filter(|process| {
        let arguments = fs::read(process.path().join("cmdline")).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|word| word == name)
    });
    all.filter_map(|process| process.file_name().to_str()?.parse().ok())
        .collect()
}
