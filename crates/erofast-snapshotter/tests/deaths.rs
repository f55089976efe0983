//! The snapshotter killed at random moments, while containers read.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tonic::Code;

use crate::node::{Labels, Node, Site, labels, mounts};

/// Kills; a longer run is asked for by `EROFAST_SNAPSHOTTER_KILLS`.
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
    // Containers, which lie above the layer, then the layer.
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

/// Also when the test fails, so that the reader ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Calls, of which one is cut off by a kill; then what was said to be there is there.
fn churn(node: &mut Node, site: &Site, round: u64) {
    let mut said: Vec<String> = Vec::new();
    let pid = node.pid();
    let moment = Duration::from_micros(round.wrapping_mul(7919) % 60 * 1000);
    let killer = thread::spawn(move || {
        thread::sleep(moment);
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
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
