//! Every malformed image is rejected, or everything in it that is not broken stays readable.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use crate::common::watch::{MEMORY_KIB, watch};
use crate::common::{bad_images, erofast, manifest, verify};
use erofs_engine::erofs_format::FileType;
use erofs_engine::{Engine, EngineOptions, Error, ReadContext};
use serde::Deserialize;

/// A malformed image and the expected result.
#[derive(Debug, Deserialize)]
struct Case {
    image: String,
    expect: String,
    paths: Vec<String>,
}

fn cases() -> (PathBuf, Vec<Case>) {
    let bad = bad_images();
    let text = std::fs::read_to_string(bad.join("manifest.jsonl")).expect("manifest.jsonl");
    let cases = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("a case"))
        .collect();
    (bad, cases)
}

/// Lists what the engine does wrong with a malformed image.
fn complaints(case: &Case, image: &Path, mini: &Path) -> Vec<String> {
    let engine = match (
        Engine::open(image, &EngineOptions::default()),
        case.expect.as_str(),
    ) {
        (Err(_), "reject") => return Vec::new(),
        (Err(_), "survive") if case.paths.iter().any(String::is_empty) => return Vec::new(),
        (Ok(_), "reject") => return vec!["opens".to_owned()],
        (Err(error), _) => return vec![format!("does not open: {error}")],
        (Ok(engine), _) => engine,
    };
    let skip: Vec<&str> = case.paths.iter().map(String::as_str).collect();
    let mut found = verify::differences(&engine, &manifest::read(mini), &skip);
    if case.expect == "error" {
        let silent = case
            .paths
            .iter()
            .filter(|path| read_whole(&engine, path).is_ok());
        found.extend(silent.map(|path| format!("{path}: no error")));
    }
    found
}

/// Makes every kind of request for a path.
fn read_whole(engine: &Arc<Engine>, path: &str) -> Result<(), Error> {
    let inode = engine.resolve(path.as_bytes(), false)?;
    engine.xattrs(&engine.waiting(), &inode)?;
    match inode.file_type() {
        FileType::Symlink => engine.read_link(&engine.waiting(), &inode).map(drop),
        FileType::Directory => engine.read_dir(&inode, 0, &mut |_, _, _, _| {
            std::ops::ControlFlow::Continue(())
        }),
        _ => {
            let mut buffer = vec![0; 1 << 20];
            let mut offset = 0;
            loop {
                let context = ReadContext::Reader { readahead: false };
                let count =
                    engine.read_at(&engine.request(context), &inode, offset, &mut buffer)?;
                if count == 0 {
                    return Ok(());
                }
                offset += count as u64;
            }
        }
    }
}

#[test]
fn malformed_images_give_their_outcome() {
    let (bad, cases) = cases();
    let mini = bad.join("mini.jsonl");
    let mut report = Vec::new();
    for case in &cases {
        let found = complaints(case, &bad.join(&case.image), &mini);
        report.extend(
            found
                .iter()
                .take(5)
                .map(|c| format!("{} ({}): {c}", case.image, case.expect)),
        );
    }
    println!("{} malformed images", cases.len());
    assert!(report.is_empty(), "{}", report.join("\n"));
}

#[test]
fn checking_a_malformed_image_ends_with_its_faults_and_in_bounded_memory() {
    let (bad, cases) = cases();
    let mut report = Vec::new();
    for case in &cases {
        let child = erofast()
            .args(["check", "--json"])
            .arg(bad.join(&case.image))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("erofast starts");
        let (peak, output) = watch(child);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let mut complain = |what: String| report.push(format!("{}: {what}", case.image));
        if peak > MEMORY_KIB {
            complain(format!("{peak} KiB of memory"));
        }
        match (case.expect.as_str(), output.status.code()) {
            ("intact", Some(0)) | ("survive", Some(0 | 1)) => {}
            ("error", Some(1)) if !output.stdout.is_empty() => {}
            ("reject", Some(1)) if stderr.lines().count() == 1 => {}
            (expect, status) => complain(format!("{expect}: status {status:?}, {stderr}")),
        }
    }
    assert!(report.is_empty(), "{}", report.join("\n"));
}
