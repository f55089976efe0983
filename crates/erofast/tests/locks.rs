//! Every lock that a request can take has priority inheritance, except those listed here with a
//! reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The source folders of the crates whose code serves requests.
const SERVING: [&str; 13] = [
    "cpu-workers/src",
    "dm-verity/src",
    "erofs-codecs/src",
    "erofs-engine/src",
    "erofs-format/src",
    "erofs-fuse/src/ahead",
    "erofs-fuse/src/answer",
    "erofs-fuse/src/serve",
    "erofs-fuse/src/threads",
    "fuse-transport/src",
    "look-ahead/src",
    "page-pool/src",
    "remote-image/src",
];

/// Files that use a lock of the standard library, with the reason.
const LISTED: [(&str, &str); 9] = [
    (
        "cpu-workers/src/faults.rs",
        "only tests make the start-up fail",
    ),
    (
        "cpu-workers/src/sync.rs",
        "slots of workers: written only when a CPU comes or goes",
    ),
    (
        "cpu-workers/src/worker/spawn.rs",
        "joined by the thread that ends the workers",
    ),
    (
        "cpu-workers/src/worker/unbound.rs",
        "used only for CPUs without a pinned worker",
    ),
    ("cpu-workers/src/workers.rs", "used at the end of a pool"),
    (
        "dm-verity/src/cache.rs",
        "tried, not waited for; or for upper blocks, each stored once",
    ),
    (
        "erofs-engine/src/trace_spans.rs",
        "used only while spans are recorded",
    ),
    (
        "erofs-format/src/zmap.rs",
        "tried, not waited for; one write per 1024 extents",
    ),
    (
        "remote-image/src/receiver.rs",
        "used by threads that wait for the network anyway",
    ),
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        match path.is_dir() {
            true if name == "tests" => {}
            true => sources(&path, found),
            false if name.contains("tests") || name == "models.rs" => {}
            false if name.ends_with(".rs") => found.push(path),
            false => {}
        }
    }
}

/// Whether a file, apart from its tests, uses a lock without priority inheritance.
fn names_a_plain_lock(source: &str) -> bool {
    let tests = "#[cfg(all(test, not(feature = \"loom\")))]\nmod tests";
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap();
    let code = code.split(tests).next().unwrap();
    let code: String = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    code.split("std::sync::").skip(1).any(|rest| {
        let end = match rest.strip_prefix('{') {
            Some(group) => group.find("};").map_or(rest.len(), |end| end + 1),
            None => rest
                .find(|c: char| !c.is_alphanumeric())
                .unwrap_or(rest.len()),
        };
        let mut names = rest[..end].split(|c: char| !c.is_alphanumeric());
        names.any(|name| matches!(name, "Mutex" | "RwLock" | "Condvar"))
    })
}

#[test]
fn a_request_waits_for_no_lock_whose_holder_inherits_nothing() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for directory in SERVING {
        sources(&crates.join(directory), &mut files);
    }
    let mut listed: BTreeMap<_, _> = LISTED.into_iter().collect();
    let unlisted = files.iter().filter(|file| {
        let name = file.strip_prefix(&crates).unwrap().to_str().unwrap();
        let plain = names_a_plain_lock(&fs::read_to_string(file).unwrap());
        plain && listed.remove(name).is_none()
    });
    let unlisted: Vec<_> = unlisted.collect();
    assert!(
        unlisted.is_empty(),
        "use PiMutex, or list the file with a reason: {unlisted:?}"
    );
    assert!(listed.is_empty(), "no longer: {listed:?}");
    assert!(files.len() > 100);
}

#[test]
fn a_lock_is_recognised_by_its_type() {
    assert!(names_a_plain_lock(
        "use std::sync::{Arc, Mutex};\nstruct A(Mutex<u8>);"
    ));
    assert!(names_a_plain_lock("fn f() -> std::sync::RwLock<u8> {}"));
    assert!(!names_a_plain_lock(
        "use std::sync::Arc;\nuse sys::PiMutex;\n// Mutex"
    ));
}
