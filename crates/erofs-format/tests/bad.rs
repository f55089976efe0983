//! A malformed image is either rejected, or everything reachable in it yields a result or an error,
//! never a panic or an endless walk. Only metadata is tested here; faults that only a decoder
//! notices are left to the engine.

use crate::common::*;
use erofs_format::{ErrorClass, ExtentKind, Reader};
use serde_json::Value;

fn cases() -> Vec<Value> {
    let text = std::fs::read_to_string(fixtures().join("bad/manifest.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn open_bad(case: &Value) -> (String, Result<Opened, erofs_format::Error>) {
    let name = case["image"].as_str().unwrap().to_owned();
    let bytes = std::fs::read(fixtures().join("bad").join(&name));
    let image = Opened::new(vec![std::sync::Arc::new(bytes.unwrap())]);
    (name, image)
}

/// Images whose fault is found by a decoder but not by mapping.
const LEFT_TO_THE_DECODER: [&str; 5] = [
    "lz4-garbage.erofs",
    "lzma-garbage.erofs",
    "deflate-garbage.erofs",
    "zstd-garbage.erofs",
    // Only the engine, which decodes the packed inode, knows its size.
    "fragment-off-far.erofs",
];

#[test]
fn what_must_be_rejected_is_rejected() {
    let mut count = 0;
    for case in cases() {
        let (name, image) = open_bad(&case);
        match (case["expect"].as_str().unwrap(), image) {
            ("reject", Ok(_)) => panic!("{name} was opened: {}", case["what"]),
            ("reject", Err(error)) => {
                count += 1;
                assert_ne!(error.class(), ErrorClass::Io, "{name}: {error}");
                println!("{name}: {error}");
            }
            (_, Ok(_)) => {}
            (_, Err(error)) => panic!("{name} was refused: {error}"),
        }
    }
    assert_eq!(count, 12, "images to reject");
}

/// Reads everything reachable; returns the errors by path.
fn read_everything(opened: &mut Opened) -> Vec<(Vec<u8>, String)> {
    opened.supply_special();
    let image = opened.reader();
    let walk = walk(image);
    let mut errors: Vec<(Vec<u8>, String)> = walk.broken.into_iter().collect();
    for (path, inode) in walk.inodes {
        let inode = match inode {
            Ok(inode) => inode,
            Err(error) => {
                errors.push((path, error));
                continue;
            }
        };
        if let Err(error) = image.xattrs(&inode) {
            errors.push((path.clone(), error.to_string()));
        }
        if let Err(error) = image.xattr(&inode, b"user.a") {
            errors.push((path.clone(), error.to_string()));
        }
        if let Err(error) = map_wholly(image, &inode) {
            errors.push((path, error));
        }
    }
    errors
}

fn map_wholly(image: Reader<'_>, inode: &erofs_format::Inode) -> Result<(), String> {
    use erofs_format::FileType::{Directory, Regular, Symlink};
    let mut at = 0;
    let mut count = 0;
    while at < inode.size && matches!(inode.file_type(), Regular | Directory | Symlink) {
        let extent = image.map(inode, at).map_err(|error| error.to_string())?;
        assert!(extent.logical <= at && at < extent.end() && extent.end() <= inode.size);
        if let ExtentKind::Compressed(pcluster) = &extent.kind {
            assert!(pcluster.length <= 1 << 20 && pcluster.decoded_length <= 12 << 20);
            assert!(pcluster.decoded_length >= extent.length);
        }
        (at, count) = (extent.end(), count + 1);
        assert!(count < 1_000_000, "too many extents");
    }
    Ok(())
}

#[test]
fn what_is_opened_gives_results_or_errors_and_the_rest_stays_intact() {
    let mut unexpected = Vec::new();
    for case in cases().iter().filter(|case| case["expect"] != "reject") {
        let (name, image) = open_bad(case);
        let errors = read_everything(&mut image.unwrap());
        let paths: Vec<&str> = case["paths"]
            .as_array()
            .unwrap()
            .iter()
            .map(|path| path.as_str().unwrap())
            .collect();
        for (path, error) in &errors {
            println!("{name}: /{}: {error}", path.escape_ascii());
            let expected = paths.iter().any(|expected| {
                path == expected.as_bytes()
                    || path.starts_with(format!("{expected}/").as_bytes())
                    || expected.is_empty()
            });
            let needs_decoder = error == "needs a decoder";
            if !expected && !needs_decoder {
                unexpected.push(format!("{name}: /{}: {error}", path.escape_ascii()));
            }
        }
        if case["expect"] == "error" && !LEFT_TO_THE_DECODER.contains(&name.as_str()) {
            for path in paths {
                if !errors.iter().any(|(found, _)| found == path.as_bytes()) {
                    unexpected.push(format!(
                        "{name}: /{path} returns no error ({})",
                        case["what"]
                    ));
                }
            }
        }
    }
    assert!(unexpected.is_empty(), "{}", unexpected.join("\n"));
}

/// The next number of a fixed pseudo-random sequence.
fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6364136223846793005)
        .wrapping_add(1442695040888963407);
    *state >> 33
}

/// Small images with all features.
const SEEDS: [&str; 8] = [
    "blobdev",
    "lcluster-16k-bigpcluster",
    "lz4-48bit-64k",
    "zstd-48bit-unaligned",
    "deflate-window512",
    "multidev-merge",
    "zstd-b1024",
    "lz4-full-index-64k",
];

#[test]
fn images_with_random_bytes_changed_never_panic() {
    let mut state = 20231123;
    let mut opened = 0;
    for listed in listed()
        .iter()
        .filter(|listed| SEEDS.contains(&listed.name.as_str()))
    {
        let good = std::fs::read(images().join(format!("{}.erofs", listed.name))).unwrap();
        let extra: Vec<_> = listed
            .extra_devices
            .iter()
            .map(|name| read_file(name))
            .collect();
        for _ in 0..400 {
            let mut bad = good.clone();
            // With the checksum feature cleared, bytes of the superblock may be changed too.
            bad[1032] &= !1;
            let superblock = next(&mut state).is_multiple_of(8);
            for _ in 0..1 + next(&mut state) % 40 {
                let at = match superblock {
                    true => 1028 + next(&mut state) as usize % 140,
                    false => 1168 + next(&mut state) as usize % (bad.len() - 1168).min(16384),
                };
                bad[at] = next(&mut state) as u8;
            }
            let mut devices: Vec<std::sync::Arc<dyn erofs_format::ReadAt + Send + Sync>> =
                vec![std::sync::Arc::new(bad)];
            devices.extend(extra.iter().cloned());
            if let Ok(mut image) = Opened::new(devices) {
                opened += 1;
                read_everything(&mut image);
            }
        }
    }
    assert!(opened > 1000, "{opened} images were opened");
}
