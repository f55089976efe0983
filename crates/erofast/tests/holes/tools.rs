//! How the commands treat pclusters that are holes.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use erofs_oracles::holes::How;
use serde_json::Value;

use super::{Punched, punch};
use crate::common::{TestImage, erofast, fixtures, good_images};

/// An image with holes, and its largest file that has any.
struct Image {
    path: PathBuf,
    file: Punched,
}

impl Image {
    fn name(&self) -> &str {
        std::str::from_utf8(&self.file.path)
            .expect("a name of ASCII")
            .trim_start_matches('/')
    }

    /// Number of blocks in holes that are long enough to be left out.
    fn blocks(&self) -> u64 {
        let long = self
            .file
            .holes
            .iter()
            .filter(|hole| hole.end - hole.start >= 64 << 10);
        let blocks = long.map(|hole| (hole.end / 4096).saturating_sub(hole.start.div_ceil(4096)));
        blocks.sum()
    }
}

fn fixture(name: &str) -> TestImage {
    let mut images = good_images(&fixtures()).into_iter();
    images.find(|image| image.name == name).expect("a fixture")
}

fn images(place: &Path) -> Vec<Image> {
    let made = [
        ("lz4-full-index-64k", How::Bit),
        ("lz4-full-index-64k", How::Count),
        ("lz4-64k", How::CompactCount),
    ];
    let images = made.into_iter().map(|(name, how)| {
        let path = place.join(format!("{name}-{how:?}.erofs"));
        let mut punched = punch(&fixture(name), how, &path);
        Image {
            path,
            file: punched.swap_remove(0),
        }
    });
    images.collect()
}

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().expect("it starts");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {why}");
    output
}

fn json(command: &mut Command) -> Value {
    serde_json::from_slice(&succeeds(command).stdout).expect("JSON")
}

#[test]
fn info_check_and_cat_show_holes() {
    let place = tempfile::tempdir().expect("a directory");
    for image in images(place.path()) {
        let listed = json(
            erofast()
                .args(["info", "--json", "--extents", image.name()])
                .arg(&image.path),
        );
        let rows = listed.as_array().expect("rows").iter();
        let holes = rows.filter(|row| row["kind"] == "hole").map(|row| {
            assert_eq!(
                (&row["physical"], &row["stored"]),
                (&Value::Null, &Value::from(0)),
                "{row}"
            );
            let offset = row["offset"].as_u64().expect("an offset");
            offset..offset + row["length"].as_u64().expect("a length")
        });
        assert_eq!(holes.collect::<Vec<_>>(), image.file.holes);
        let report = json(erofast().args(["check", "--json"]).arg(&image.path));
        assert_eq!(report["faults"], Value::Array(Vec::new()));
        let of_file: u64 = image
            .file
            .holes
            .iter()
            .map(|hole| hole.end - hole.start)
            .sum();
        assert!(report["hole_bytes"].as_u64() >= Some(of_file), "{report}");
        let printed = succeeds(erofast().arg("cat").arg(&image.path).arg(image.name()));
        assert!(printed.stdout == image.file.content, "{:?}", image.path);
    }
}

#[test]
fn extract_and_tar_streams_keep_holes() {
    let place = tempfile::tempdir().expect("a directory");
    for image in images(place.path()) {
        let target = place.path().join("target");
        succeeds(erofast().arg("extract").arg(&image.path).arg(&target));
        let file = target.join(image.name());
        assert!(std::fs::read(&file).expect("a file") == image.file.content);
        let allocated = file.metadata().expect("a file").blocks() * 512;
        let left_out = image.blocks() * 4096;
        let most = (image.file.content.len() as u64).next_multiple_of(4096) - left_out;
        assert!(
            left_out > 0 && allocated <= most,
            "{:?}: {allocated}",
            image.path
        );
        std::fs::remove_dir_all(&target).expect("removed");
        // Another program reads the stream.
        let stream = place.path().join("stream.tar");
        let to = File::create(&stream).expect("a file");
        let mut command = erofast();
        succeeds(command.arg("extract").arg(&image.path).arg("-").stdout(to));
        let bytes = std::fs::read(&stream).expect("a stream");
        let is_sparse = bytes
            .windows(20)
            .any(|bytes| bytes == b"GNU.sparse.realsize=");
        assert!(is_sparse, "{:?}: no sparse member", image.path);
        let mut tar = Command::new("tar");
        let tar = tar
            .arg("-xOf")
            .arg(&stream)
            .arg(format!("./{}", image.name()));
        assert!(
            succeeds(tar).stdout == image.file.content,
            "{:?}",
            image.path
        );
    }
}

#[test]
fn dump_and_fsck_say_hole_and_decode_nothing_of_it() {
    let place = tempfile::tempdir().expect("a directory");
    let link = |name: &str| {
        let link = place.path().join(name);
        symlink(env!("CARGO_BIN_EXE_erofast"), &link).expect("a link");
        link
    };
    let (dump, fsck) = (link("dump.erofs"), link("fsck.erofs"));
    for image in images(place.path()) {
        let path = format!("--path=/{}", image.name());
        let dumped = succeeds(Command::new(&dump).args(["-e", &path]).arg(&image.path)).stdout;
        let dumped = String::from_utf8(dumped).expect("text");
        for hole in &image.file.holes {
            let (begin, end) = (hole.start, hole.end);
            let row = format!(
                "{begin:>8}..{end:>8} | {:>7} : {:>10}..{:>10} | {:>7}  # hole",
                end - begin,
                0,
                0,
                0
            );
            assert!(dumped.contains(&row), "{row}\n{dumped}");
        }
        assert_eq!(
            dumped.matches("# hole").count(),
            image.file.holes.len(),
            "{dumped}"
        );
        let checked = Command::new(&fsck)
            .args(["-d3", "--extract"])
            .arg(&image.path)
            .output();
        let checked = checked.expect("it starts");
        assert_eq!(checked.stderr, b"<I> erofs: No errors found\n");
    }
}
