//! A recording has the requests of a mount on tracks of their own. Needs root, tracefs, /dev/fuse and
//! ../shared/images; says what it skips.

use std::path::{Path, PathBuf};
use std::process::Command;

struct Mount(tempfile::TempDir);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = erofast().arg("umount").arg(self.0.path()).status();
    }
}

fn erofast() -> Command {
    Command::new(env!("CARGO_BIN_EXE_erofast"))
}

fn image() -> Option<PathBuf> {
    let image =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/images/lz4hc-16k.erofs");
    let missing = if !image.is_file() {
        "../shared/images is not there"
    } else if !Path::new("/dev/fuse").exists() {
        "no /dev/fuse"
    } else if std::fs::read_dir("/sys/kernel/tracing/instances").is_err() {
        "no tracefs, or no right to it"
    } else {
        return Some(image);
    };
    println!("skipped: {missing}");
    None
}

/// Varint-framed fields of a protocol buffer: number and, for those with a length, content.
fn fields(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    fn number(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = bytes.split_first().expect("a whole number");
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = number(&mut bytes);
        let length = match key & 7 {
            0 => {
                number(&mut bytes);
                0
            }
            1 => 8,
            2 => number(&mut bytes) as usize,
            5 => 4,
            other => panic!("wire type {other}"),
        };
        let (content, rest) = bytes.split_at(length);
        bytes = rest;
        found.push((key >> 3, content));
    }
    found
}

/// Names of all tracks, and of all slices.
fn tracks_and_slices(trace: &[u8]) -> (Vec<String>, Vec<String>) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    // Numbers of Perfetto's messages: Trace.packet 1, TracePacket.track_event 11 and .track_descriptor 60,
    // TrackEvent.name 23, TrackDescriptor.name 2.
    let inside = |packet: u64, name: u64| -> Vec<String> {
        let packets = fields(trace).into_iter().filter(|(field, _)| *field == 1);
        packets
            .flat_map(|(_, bytes)| fields(bytes))
            .filter(|(field, _)| *field == packet)
            .flat_map(|(_, bytes)| fields(bytes))
            .filter(|(field, _)| *field == name)
            .map(|(_, bytes)| text(bytes))
            .collect()
    };
    (inside(60, 2), inside(11, 23))
}

#[test]
fn a_recording_has_the_requests_of_a_mount_with_what_was_done_for_them() {
    let Some(image) = image() else { return };
    let mount = Mount(tempfile::tempdir().unwrap());
    let status = erofast()
        .arg("mount")
        .arg(&image)
        .arg(mount.0.path())
        .status()
        .unwrap();
    assert!(status.success());
    let trace = tempfile::NamedTempFile::new().unwrap();
    let script = "cat $(find \"$0\" -type f) > /dev/null";
    let output = erofast()
        .args(["trace", "record", "-o"])
        .arg(trace.path())
        .args(["--", "sh", "-c", script])
        .arg(mount.0.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if said.contains("tracefs") && !output.status.success() {
        return println!("skipped: {said}");
    }
    assert!(output.status.success(), "{said}");
    assert!(said.contains(" requests of "), "{said}");
    let (tracks, slices) = tracks_and_slices(&std::fs::read(trace.path()).unwrap());
    assert!(tracks.iter().any(|track| track == "requests"), "{tracks:?}");
    for name in ["read ", "fetch ", "decompress ", "reply "] {
        assert!(
            slices.iter().any(|slice| slice.starts_with(name)),
            "{name}: {slices:?}"
        );
    }
    if Path::new("/sys/kernel/tracing/events/fuse/fuse_request_send").exists() {
        assert!(
            tracks.iter().any(|track| track == "requests waiting"),
            "{tracks:?}"
        );
    }
    // The recorder's own questions are not among them.
    assert!(
        !slices.iter().any(|slice| slice.starts_with("getxattr")),
        "{slices:?}"
    );
}
