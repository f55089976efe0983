//! `ls`, `cat` and `info` behave like the shell's tools.

use std::process::Output;

use crate::common::{TestImage, all_good_images, manifest};
use serde_json::Value;

fn image() -> TestImage {
    let found = all_good_images()
        .into_iter()
        .find(|image| image.name == "lz4-full-index-64k");
    found.expect("a fixture")
}

/// Runs `erofast COMMAND [OPTIONS] IMAGE [REST]`.
fn run(command: &str, options: &[&str], rest: &[&str]) -> Output {
    let mut erofast = crate::common::erofast();
    erofast
        .arg(command)
        .args(options)
        .arg(image().path)
        .args(rest);
    erofast.output().expect("it starts")
}

fn text(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&text(output)).expect("JSON")
}

#[test]
fn patterns_stand_for_names() {
    let names = |patterns: &[&str]| text(&run("ls", &[], patterns));
    assert_eq!(names(&["t/s40*"]), "t/s4095\nt/s4096\nt/s4097\n");
    assert_eq!(names(&["/**/s?0"]), "t/s50\n");
    assert_eq!(names(&["t/s[0-1]", "link"]), "t/s0\nt/s1\nlink\n");
}

#[test]
fn a_slash_after_a_name_asks_for_a_directory() {
    for command in ["ls", "cat"] {
        for path in ["t/s50/", "t/s50/.", "t/s50/..", "/link/"] {
            let output = run(command, &[], &[path]);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(
                !output.status.success() && stderr.contains("not a directory"),
                "{command} {path}: {stderr}"
            );
        }
    }
    assert_eq!(text(&run("ls", &["-d"], &["t/"])), "t\n");
    assert_eq!(text(&run("ls", &["-d"], &["/link"])), "link\n");
}

#[test]
fn a_recursive_listing_has_each_directory_under_its_name() {
    let listing = text(&run("ls", &["-R"], &[]));
    assert!(listing.starts_with("/:\nhard\n"), "{listing}");
    assert!(listing.contains("\n\n/t:\ns0\ns1\n"), "{listing}");
    assert_eq!(text(&run("ls", &["-d"], &["t"])), "t\n");
    let entries = manifest::read(&image().manifest).len() - 1;
    assert_eq!(
        text(&run("ls", &["-R", "--json"], &[])).lines().count(),
        entries
    );
}

#[test]
fn cat_joins_what_a_pattern_finds() {
    let all = run("cat", &[], &["t/s40*"]);
    assert!(all.status.success());
    assert_eq!(all.stdout.len(), 4095 + 4096 + 4097);
    let none = run("cat", &[], &["t/nothing*"]);
    assert_eq!(none.status.code(), Some(1));
}

#[test]
fn extents_make_up_the_file_and_their_blocks_know_it() {
    let rows = json(&run("info", &["--json", "--extents", "mixed-90000"], &[]));
    let rows = rows.as_array().expect("rows");
    let mut end = 0;
    for row in rows {
        assert_eq!(row["offset"].as_u64(), Some(end));
        end += row["length"].as_u64().expect("a length");
        let block = row["physical"].as_u64().expect("an address") / 4096;
        let owners = json(&run(
            "info",
            &["--json", "--block", &block.to_string()],
            &[],
        ));
        let owners = owners["owners"].as_array().expect("owners").clone();
        let found = owners
            .iter()
            .any(|o| o["path"] == "/mixed-90000" && o["extent"] == *row);
        assert!(found, "{row} {owners:?}");
    }
    assert_eq!(end, 90000);
    let beyond = run("info", &["--block", "99999"], &[]);
    assert_eq!(beyond.status.code(), Some(1));
}

#[test]
fn the_spread_counts_every_file_once() {
    let report = json(&run("info", &["--json"], &[]));
    let files = report["types"]["regular files"].as_u64().expect("a count");
    let sizes = report["files"]["sizes"].as_array().expect("ranges");
    let counted: u64 = sizes
        .iter()
        .filter_map(|range| range[1]["files"].as_u64())
        .sum();
    assert_eq!(counted, files);
    let bytes: u64 = sizes
        .iter()
        .filter_map(|range| range[1]["bytes"].as_u64())
        .sum();
    assert_eq!(Some(bytes), report["content_bytes"].as_u64());
}

/// Runs `erofast COMMAND` on an image whose directory `dir/sub` has an entry `../.././x`.
fn run_broken(command: &str, rest: &[&str]) -> Output {
    let image = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/bad/dirent-name-slash.erofs"
    );
    let mut erofast = crate::common::erofast();
    erofast.arg(command).arg(image).args(rest);
    erofast.output().expect("it starts")
}

#[test]
fn what_is_left_out_of_a_listing_is_named_and_makes_it_fail() {
    for path in ["dir/sub", "dir/sub/*"] {
        let output = run_broken("ls", &[path]);
        let (out, err) = (&output.stdout, &output.stderr);
        let (out, err) = (String::from_utf8_lossy(out), String::from_utf8_lossy(err));
        assert_eq!(output.status.code(), Some(1), "{path}: {out}");
        assert!(
            out.contains("entry-04") && out.contains("entry-06"),
            "{path}: {out}"
        );
        assert_eq!(
            err.matches("is not a valid name").count(),
            1,
            "{path}: {err}"
        );
    }
}

#[test]
fn a_name_that_may_be_a_broken_one_is_no_missing_file() {
    for command in ["ls", "cat"] {
        let output = run_broken(command, &["dir/sub/entry-05"]);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}");
        assert!(
            error.contains("is not a valid name") && error.lines().count() == 1,
            "{error}"
        );
    }
}

#[test]
fn an_extraction_that_leaves_entries_out_keeps_the_others_and_fails() {
    let place = tempfile::tempdir().expect("a directory");
    let tree = place.path().join("tree");
    let to_tree = run_broken("extract", &[tree.to_str().expect("UTF-8")]);
    let to_stream = run_broken("extract", &["-"]);
    for output in [&to_tree, &to_stream] {
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert_eq!(error.matches("is not a valid name").count(), 1, "{error}");
    }
    assert!(tree.join("dir/sub/entry-06").exists());
    let name = b"dir/sub/entry-06";
    assert!(to_stream.stdout.windows(name.len()).any(|w| w == name));
}

/// 57 directories can be divided among eight `**` in 1.6 billion ways.
#[test]
fn several_double_stars_take_each_directory_once() {
    let place = std::env::temp_dir().join(format!("erofast-deep-{}", std::process::id()));
    let deep = place.join("tree").join("a/".repeat(57));
    std::fs::create_dir_all(&deep).expect("a directory");
    std::fs::write(deep.join("f"), "x").expect("a file");
    let image = place.join("image");
    let made = std::process::Command::new("mkfs.erofs")
        .arg("--quiet")
        .args([&image, &place.join("tree")])
        .status();
    if !made.is_ok_and(|made| made.success()) {
        println!("skipped: mkfs.erofs is missing");
        return;
    }
    let mut erofast = crate::common::erofast();
    let pattern = "**/a/".repeat(8) + "**/f";
    let output = erofast.arg("ls").arg(&image).arg(pattern).output();
    std::fs::remove_dir_all(&place).expect("it is there");
    let path = "a/".repeat(57) + "f\n";
    assert_eq!(text(&output.expect("it starts")), path);
}
