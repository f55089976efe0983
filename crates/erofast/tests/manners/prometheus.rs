//! What Prometheus' own tool says of the counters.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Output, Stdio};

use super::site::{Site, fine, fixture};

/// None where the tool is not there.
fn promtool(metrics: &[u8]) -> Option<Output> {
    let mut command = Command::new("promtool");
    command.args(["check", "metrics"]).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        println!("skipped: promtool is not installed");
        return None;
    };
    child.stdin.take().unwrap().write_all(metrics).unwrap();
    Some(child.wait_with_output().unwrap())
}

/// Requests of all kinds, a fault of the image, and a mount point that a label has to quote.
#[test]
fn promtool_finds_nothing_to_say_of_the_counters() {
    let Some(site) = Site::new() else { return };
    fs::copy(fixture("bad/lz4-garbage.erofs"), site.image()).unwrap();
    let name = "a \"name\"\\ of\ntwo lines";
    let point = site.path(name);
    fs::create_dir(&point).unwrap();
    fine(&site.run(&["mount", "-o", "reserved_pages=16", "image.erofs", name]));
    let text = fs::read(point.join("text"));
    let _ = fs::read_dir(&point).unwrap().count();
    let _ = File::open(point.join("no such name"));
    let metrics = site.run(&["stat", "--prometheus", name]);
    fine(&site.run(&["umount", name]));
    fine(&metrics);
    assert!(text.is_err());
    let series = String::from_utf8_lossy(&metrics.stdout).into_owned();
    assert!(
        series.contains("/a \\\"name\\\"\\\\ of\\ntwo lines\""),
        "{series}"
    );
    let Some(verdict) = promtool(&metrics.stdout) else {
        return;
    };
    let printed = [verdict.stdout, verdict.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    assert!(verdict.status.success() && printed.is_empty(), "{printed}");
    // It does read them.
    let twice = [&metrics.stdout[..], &metrics.stdout[..]].concat();
    assert!(promtool(&twice).is_some_and(|verdict| !verdict.status.success()));
}
