//! Runs every tool on hostile images, which are generated here: each run ends, with bounded memory.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use crate::common::erofast;
use crate::common::watch::{MEMORY_KIB, watch};
use erofs_oracles::hostile::{self, Class};

fn image(directory: &Path, class: Class) -> PathBuf {
    let path = directory.join(format!("{class:?}.erofs"));
    hostile::write(class, &path).expect("a file");
    path
}

/// Runs a tool with its output in files; returns peak memory in KiB, status and output.
fn run(directory: &Path, arguments: &[&str]) -> (u64, Output) {
    let [out, errors] = ["out", "errors"].map(|name| directory.join(name));
    let create = |path: &Path| Stdio::from(File::create(path).expect("a file"));
    let child = erofast()
        .args(arguments)
        .stdout(create(&out))
        .stderr(create(&errors))
        .spawn()
        .expect("erofast starts");
    let (peak, mut output) = watch(child);
    output.stdout = std::fs::read(out).expect("its output");
    output.stderr = std::fs::read(errors).expect("its errors");
    (peak, output)
}

/// Divides the classes among as many threads as there are CPUs, because most of them take a long
/// time.
#[test]
fn every_tool_ends_in_bounded_memory() {
    let (classes, complaints) = (Mutex::new(Class::ALL.to_vec()), Mutex::new(Vec::new()));
    let next = || classes.lock().expect("no panic").pop();
    let work = || {
        while let Some(class) = next() {
            let found = tools_on(class);
            complaints.lock().expect("no panic").extend(found);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let complaints = complaints.into_inner().expect("no panic");
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

/// Runs all tools on an image of a class; returns what they did wrong.
fn tools_on(class: Class) -> Vec<String> {
    let directory = tempfile::tempdir().expect("a directory");
    let target = directory.path().join("target");
    let image = image(directory.path(), class);
    let image = image.to_str().expect("a name of ASCII");
    let tools: [&[&str]; 8] = [
        &["info", image],
        &["info", image, "--json"],
        &["info", image, "--block", "1"],
        &["ls", image, "/huge"],
        &["ls", "-lR", image],
        &["check", image],
        &["extract", image, "-"],
        &["extract", image, target.to_str().expect("a name of ASCII")],
    ];
    // Each listing decodes the same 12 MiB again for every few names, which takes seconds. With
    // millions of records, one tool of each kind is enough.
    let tools = match class {
        Class::SparseNames => &tools[4..6],
        Class::SmallRecords => &[tools[0], tools[4], tools[5], tools[7]],
        _ => &tools[..],
    };
    let mut complaints = Vec::new();
    for &tool in tools {
        let begin = Instant::now();
        let (peak, output) = run(directory.path(), tool);
        let took = begin.elapsed();
        println!(
            "{class:?}: {}: {peak} KiB, {}, {took:?}",
            tool[0], output.status
        );
        if peak > MEMORY_KIB {
            complaints.push(format!("{class:?}: {tool:?}: {peak} KiB"));
        }
        if !matches!(output.status.code(), Some(0 | 1)) {
            complaints.push(format!("{class:?}: {tool:?}: {}", output.status));
        }
    }
    complaints
}

/// Names and types of the members of a tar stream.
fn members(stream: &[u8]) -> Vec<(String, u8)> {
    let mut members = Vec::new();
    let mut at = 0;
    while let Some(header) = stream.get(at..at + 512)
        && header[0] != 0
    {
        let text = |range: std::ops::Range<usize>| {
            let field = &header[range];
            let end = field.iter().position(|&byte| byte == 0);
            String::from_utf8_lossy(&field[..end.unwrap_or(field.len())]).into_owned()
        };
        let size = usize::from_str_radix(text(124..136).trim(), 8).expect("a size");
        members.push((text(0..100), header[156]));
        at += 512 + size.next_multiple_of(512);
    }
    members
}

#[test]
fn a_stream_never_leads_through_a_symlink() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = image(directory.path(), Class::SymlinkThenFile);
    let (_, output) = run(directory.path(), &["extract", image.to_str().unwrap(), "-"]);
    let members = members(&output.stdout);
    let named: Vec<_> = members
        .iter()
        .filter(|(name, _)| name.contains("name"))
        .collect();
    assert_eq!(named.len(), 1, "{members:?}");
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("name: its directory already has an entry with this name"),
        "{errors}"
    );
}

#[test]
fn a_name_that_occurs_twice_is_extracted_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = image(directory.path(), Class::TwiceTheName);
    let image = image.to_str().unwrap();
    let target = directory.path().join("target");
    let (_, output) = run(
        directory.path(),
        &["extract", image, target.to_str().unwrap()],
    );
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        std::fs::read(target.join("name")).expect("it is there"),
        b"good\n"
    );
    let (_, output) = run(directory.path(), &["extract", image, "-"]);
    assert_eq!(output.status.code(), Some(1));
    let count = members(&output.stdout)
        .iter()
        .filter(|(name, _)| name == "./name")
        .count();
    assert_eq!(count, 1);
}

/// JSON is for programs, so its names are unchanged.
#[test]
fn no_tool_prints_characters_that_turn_a_line_around() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = image(directory.path(), Class::Bidirectional);
    let image = image.to_str().unwrap();
    let target = directory.path().join("target");
    for tool in [
        &["ls", "-l", image][..],
        &["check", image],
        &["info", image],
        &["extract", image, target.to_str().unwrap()],
    ] {
        let (_, output) = run(directory.path(), tool);
        for printed in [&output.stdout, &output.stderr] {
            let printed = String::from_utf8_lossy(printed);
            assert!(!printed.contains('\u{202e}'), "{tool:?}: {printed}");
        }
    }
}
