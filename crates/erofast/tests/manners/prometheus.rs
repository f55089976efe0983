//! Runs Prometheus' own tool over the counters.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::site::{Site, ends, fine, fixture, signal, some_file, soon};

/// Runs the tool; `None` if it is not installed.
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

/// Covers requests of all kinds, a fault in the image, and a mount point that must be quoted in a
/// label.
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
    // Proves that the tool really reads the page.
    let twice = [&metrics.stdout[..], &metrics.stdout[..]].concat();
    assert!(promtool(&twice).is_some_and(|verdict| !verdict.status.success()));
}

/// The value of the series `name` for the mount at `point`.
fn value<'t>(text: &'t str, name: &str, point: &Path) -> Option<&'t str> {
    let begin = format!("erofast_{name}{{mountpoint=\"{}\"", point.display());
    let line = text.lines().find(|line| line.starts_with(&begin))?;
    line.rsplit(' ').next()
}

#[test]
fn a_mount_that_is_stuck_or_dead_is_not_up_and_the_others_are_shown() {
    let Some(site) = Site::new() else { return };
    let [stuck, dead] = ["stuck", "dead"].map(|name| site.path(name));
    for name in ["stuck", "dead"] {
        fs::create_dir(site.path(name)).unwrap();
        let options = "restart=off";
        fine(&site.run(&["mount", "-o", options, "image.erofs", name]));
    }
    fine(&site.run(&["mount", "image.erofs", "mnt"]));
    let pid = |name| {
        let counters = site.run(&["stat", "--json", name]);
        let counters: serde_json::Value = serde_json::from_slice(&counters.stdout).unwrap();
        counters["pid"].as_u64().unwrap()
    };
    let (server, killed) = (pid("stuck"), pid("dead"));
    signal("-KILL", killed);
    signal("-STOP", server);
    soon("the death", || rustix::fs::statfs(&dead).is_err());
    let one = ends(&mut site.command(&["stat", "--prometheus", "stuck"]));
    let all = ends(&mut site.command(&["stat", "--prometheus"]));
    let file = some_file_of(&stuck);
    let inside = ends(&mut site.command(&["stat", &file]));
    signal("-CONT", server);
    for name in ["mnt", "stuck", "dead"] {
        fine(&site.run(&["umount", name]));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (series, errors) = (text(&all.stdout), text(&all.stderr));
    assert_eq!(value(&series, "up", &site.point()), Some("1"), "{series}");
    assert!(value(&series, "requests_total", &site.point()).is_some());
    for (place, why) in [(&stuck, "does not answer"), (&dead, "its daemon is dead")] {
        assert_eq!(value(&series, "up", place), Some("0"), "{series}");
        assert_eq!(value(&series, "requests_total", place), None);
        let begin = format!("erofast: {}: ", place.display());
        let mut lines = errors.lines().filter(|line| line.starts_with(&begin));
        assert!(
            lines.next().is_some_and(|line| line.contains(why)),
            "{errors}"
        );
    }
    assert_eq!(all.status.code(), Some(1));
    assert_eq!(value(&text(&one.stdout), "up", &stuck), Some("0"));
    let line = format!("stuck: its server (process {server}) does not answer: erofast umount ");
    assert!(text(&one.stderr).contains(&line), "{}", text(&one.stderr));
    assert!(
        text(&inside.stderr).contains(&line),
        "{}",
        text(&inside.stderr)
    );
}

#[test]
fn several_mounts_are_shown_and_no_others() {
    let Some(site) = Site::new() else { return };
    for name in ["one", "two", "none"] {
        fs::create_dir(site.path(name)).unwrap();
    }
    for name in ["one", "two", "mnt"] {
        fine(&site.run(&["mount", "image.erofs", name]));
    }
    let inside = some_file(&site.path("two")).display().to_string();
    let [series, table, missing] = [
        &["stat", "--prometheus", "one", "two", &inside][..],
        &["stat", "two", "one"],
        &["stat", "--prometheus", "one", "none"],
    ]
    .map(|arguments| site.run(arguments));
    let json = site.run(&["stat", "--json", "one", "two"]);
    for name in ["one", "two", "mnt"] {
        fine(&site.run(&["umount", name]));
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let page = text(&series.stdout);
    fine(&series);
    for name in ["one", "two"] {
        assert_eq!(value(&page, "up", &site.path(name)), Some("1"), "{page}");
    }
    assert_eq!(page.matches("erofast_up{").count(), 2, "{page}");
    fine(&table);
    let lines = text(&table.stdout);
    let places: Vec<_> = lines
        .lines()
        .skip(1)
        .map(|line| line.split(' ').next())
        .collect();
    let place = |name| site.path(name).display().to_string();
    let expected = [place("two"), place("one")];
    assert_eq!(places, expected.each_ref().map(|place| Some(&**place)));
    fine(&json);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["mounts"].as_array().map(Vec::len), Some(2), "{json}");
    // If nothing is mounted, no series reports a mount.
    assert_eq!(missing.status.code(), Some(1));
    let page = text(&missing.stdout);
    assert_eq!(value(&page, "up", &site.path("one")), Some("1"), "{page}");
    assert_eq!(page.matches("erofast_up{").count(), 2, "{page}");
    assert!(
        text(&missing.stderr).contains("none: "),
        "{}",
        text(&missing.stderr)
    );
}

/// A path that the kernel has not looked up yet.
fn some_file_of(point: &Path) -> String {
    point.join("never asked for").display().to_string()
}
