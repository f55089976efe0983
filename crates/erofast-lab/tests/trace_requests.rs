//! Tests that a recording shows the requests of a mount on separate tracks. The test needs root,
//! tracefs and /dev/fuse; if one is missing, it prints that it was skipped.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::recorders;

struct Mount(tempfile::TempDir);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = erofast().arg("umount").arg(self.0.path()).status();
    }
}

/// The command `erofast` from the same directory, which starts the program under test.
fn erofast() -> Command {
    Command::new(Path::new(env!("CARGO_BIN_EXE_erofast-lab")).with_file_name("erofast"))
}

fn image() -> Option<PathBuf> {
    let image =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures/lz4-64k.erofs");
    let missing = if !Path::new("/dev/fuse").exists() {
        "no /dev/fuse"
    } else if std::fs::read_dir("/sys/kernel/tracing/instances").is_err() {
        "no tracefs, or no right to it"
    } else if erofast().arg("--version").output().is_err() {
        "no erofast beside erofast-lab: cargo build -p erofast"
    } else {
        return Some(image);
    };
    println!("skipped: {missing}");
    None
}

/// A field of a protocol buffer: its number, its value, and its content if it has a length.
type Field<'a> = (u64, u64, &'a [u8]);

fn fields(mut bytes: &[u8]) -> Vec<Field<'_>> {
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
        let (value, length) = match key & 7 {
            0 => (number(&mut bytes), 0),
            1 => (0, 8),
            2 => (0, number(&mut bytes) as usize),
            5 => (0, 4),
            other => panic!("wire type {other}"),
        };
        let (content, rest) = bytes.split_at(length);
        bytes = rest;
        found.push((key >> 3, value, content));
    }
    found
}

/// The contents of all fields with this number.
fn inside<'a>(fields: &[Field<'a>], wanted: u64) -> Vec<Vec<Field<'a>>> {
    let found = fields.iter().filter(|(number, ..)| *number == wanted);
    found.map(|(_, _, content)| self::fields(content)).collect()
}

fn value(fields: &[Field<'_>], wanted: u64) -> u64 {
    let found = fields.iter().find(|(number, ..)| *number == wanted);
    found.map_or(0, |(_, value, _)| *value)
}

fn text(fields: &[Field<'_>], wanted: u64) -> String {
    let found = fields.iter().find(|(number, ..)| *number == wanted);
    found.map_or_else(String::new, |(_, _, content)| {
        String::from_utf8_lossy(content).into_owned()
    })
}

/// A slice on one of a thread's tracks.
#[derive(Debug)]
struct Shown {
    track: String,
    tid: u64,
    name: String,
    from: u64,
    to: u64,
}

/// All slices. The field numbers of Perfetto's messages: Trace.packet 1; TracePacket.timestamp 8,
/// .track_event 11, .track_descriptor 60; TrackDescriptor.uuid 1, .name 2, .thread 4, .parent_uuid
/// 5; ThreadDescriptor.tid 2; TrackEvent.type 9 (1 begins, 2 ends), .track_uuid 11, .name 23.
fn slices(trace: &[u8]) -> Vec<Shown> {
    let (mut threads, mut tracks) = (HashMap::new(), HashMap::new());
    let mut open: HashMap<u64, Vec<(String, u64)>> = HashMap::new();
    let mut shown = Vec::new();
    for packet in inside(&fields(trace), 1) {
        for track in inside(&packet, 60) {
            if let [thread] = inside(&track, 4).as_slice() {
                threads.insert(value(&track, 1), value(thread, 2));
            } else {
                let tid = threads[&value(&track, 5)];
                tracks.insert(value(&track, 1), (text(&track, 2), tid));
            }
        }
        for event in inside(&packet, 11) {
            let (at, uuid) = (value(&packet, 8), value(&event, 11));
            let open = open.entry(uuid).or_default();
            if value(&event, 9) == 1 {
                open.push((text(&event, 23), at));
                continue;
            }
            let (name, from) = open.pop().expect("a slice begins before it ends");
            let (track, tid) = tracks[&uuid].clone();
            shown.push(Shown {
                track,
                tid,
                name,
                from,
                to: at,
            });
        }
    }
    assert!(open.values().all(Vec::is_empty), "what begins ends");
    shown
}

#[test]
fn a_recording_has_the_requests_of_a_mount_with_what_was_done_for_them() {
    let Some(image) = image() else { return };
    let _alone = recorders::alone();
    let mount = Mount(tempfile::tempdir().unwrap());
    let status = erofast()
        // Read-ahead is off, because storing pages ahead of a reader is not part of any request.
        .args(["mount", "-o", "read_ahead_kb=0,profile=off"])
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
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    if printed.contains("tracefs") && !output.status.success() {
        return println!("skipped: {printed}");
    }
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains(" requests of "), "{printed}");
    let shown = slices(&std::fs::read(trace.path()).unwrap());
    let reads: Vec<&Shown> = shown
        .iter()
        .filter(|slice| slice.track == "requests" && slice.name.starts_with("read "))
        .collect();
    // Each part belongs to a request that the same thread was serving at that time.
    for name in ["fetch ", "decompress ", "reply "] {
        let mut parts = shown.iter().filter(|part| part.name.starts_with(name));
        let within = |read: &&Shown, part: &Shown| {
            read.tid == part.tid && read.from <= part.from && part.to <= read.to
        };
        assert!(
            parts.any(|part| reads.iter().any(|read| within(read, part))),
            "{name}: {shown:?}"
        );
    }
    if Path::new("/sys/kernel/tracing/events/fuse/fuse_request_send").exists() {
        let waited = shown
            .iter()
            .filter(|slice| slice.track == "requests waiting");
        let mut waited = waited.filter(|slice| slice.name.starts_with("read "));
        assert!(
            waited.any(|wait| reads
                .iter()
                .any(|read| read.tid == wait.tid && read.from == wait.to)),
            "{shown:?}"
        );
    }
    // Neither the recorder's own queries nor replies to them are among the slices.
    assert!(
        !shown.iter().any(|slice| slice.name.starts_with("getxattr")),
        "{shown:?}"
    );
    let alone = |reply: &Shown| {
        let own = |request: &Shown| request.tid == reply.tid && request.to == reply.to;
        let mut others = shown
            .iter()
            .filter(|slice| slice.track == "requests" && !slice.name.starts_with("reply"));
        reply.name.starts_with("reply") && !others.any(own)
    };
    assert!(!shown.iter().any(alone), "{shown:?}");
}

#[test]
fn a_mount_that_does_not_answer_is_said() {
    let Some(image) = image() else { return };
    let _alone = recorders::alone();
    let mount = tempfile::tempdir().unwrap();
    let trace = tempfile::NamedTempFile::new().unwrap();
    // Other recorders do not see the mount, because it is in a namespace of its own.
    let script = r#"
        "$0" mount -f "$1" "$2" & parent=$!
        for try in $(seq 600); do mountpoint -q "$2" && break; sleep 0.1; done
        daemon=$(cat /proc/$parent/task/*/children)
        kill -STOP $daemon $parent
        "$0" trace record -o "$3" -- true
        kill -KILL $daemon $parent
    "#;
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(erofast().get_program())
        .args([image.as_path(), mount.path(), trace.path()])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stderr);
    if printed.contains("tracefs") || printed.contains("unshare failed") {
        return println!("skipped: {printed}");
    }
    assert!(
        printed.contains("no requests, because a mount does not answer"),
        "{printed}"
    );
}
