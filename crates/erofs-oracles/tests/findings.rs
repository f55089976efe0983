//! Everything that fuzzing ever found, and all malformed images, run through the same oracles.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use erofs_oracles::content::open;
use erofs_oracles::holes::holes;
use erofs_oracles::mutate::Mutator;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return vec![];
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    files
}

#[test]
fn what_fuzzing_found_stays_fixed() {
    for (name, oracle) in erofs_oracles::TARGETS {
        for path in files(&workspace().join("fuzz/findings").join(name)) {
            println!("{}", path.display());
            oracle(&fs::read(&path).expect("a finding reads"));
        }
    }
}

#[test]
fn every_target_has_an_oracle_and_every_oracle_a_target() {
    let mut files = files(&workspace().join("fuzz/fuzz_targets"));
    // The trace targets call sched-trace, whose tests contain their oracle.
    files.retain(|path| {
        !fs::read_to_string(path)
            .expect("a target")
            .contains("sched-trace")
    });
    let mut targets: Vec<String> = files
        .iter()
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    let mut oracles = erofs_oracles::TARGETS.map(|(name, _)| name.to_owned());
    targets.sort();
    oracles.sort();
    assert_eq!(targets, oracles);
}

/// The images of the repository, and those of the large set beside it if present.
fn good_images() -> Vec<Vec<u8>> {
    let mut images = images(&fixtures());
    images.extend(images_of(&workspace().join("../shared/images")));
    images
}

fn fixtures() -> PathBuf {
    workspace().join("crates/erofast/tests/fixtures")
}

/// The images in a folder.
fn images(folder: &Path) -> Vec<Vec<u8>> {
    let images = images_of(folder);
    assert!(!images.is_empty(), "{} has no images", folder.display());
    images
}

fn images_of(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths = files(folder);
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "erofs")
    });
    let read = |path: PathBuf| {
        println!("{}", path.display());
        fs::read(&path).expect("an image reads")
    };
    paths.into_iter().map(read).collect()
}

#[test]
fn good_images_hold_all_promises_and_their_maps_agree_with_themselves() {
    for data in good_images() {
        erofs_oracles::opening(&data);
        erofs_oracles::xattrs(&data);
        erofs_oracles::extents_of_sound_image(&data);
        erofs_oracles::walk(&data);
        erofs_oracles::engine(&data);
    }
}

/// One hole of each kind in each image, in inodes with or without a directory entry.
#[test]
fn images_with_holes_hold_all_promises() {
    let mut count = 0;
    for data in good_images() {
        let mut made = BTreeSet::new();
        let Ok(opened) = open(&data) else { continue };
        let image = opened.reader();
        let nids = (0..data.len() as u64 / 32).filter(|&nid| image.inode(nid).is_ok());
        for hole in nids.flat_map(|nid| holes(&data, nid)) {
            if !made.insert(hole.how) {
                continue;
            }
            let mut punched = data.clone();
            hole.punch(&mut punched);
            erofs_oracles::extents(&punched);
            erofs_oracles::walk(&punched);
            erofs_oracles::engine(&punched);
            count += 1;
        }
    }
    assert!(count > 5, "{count} images");
}

#[test]
fn malformed_images_hold_the_promises_for_hostile_ones() {
    for data in images(&fixtures().join("bad")) {
        erofs_oracles::opening(&data);
        erofs_oracles::xattrs(&data);
        erofs_oracles::extents(&data);
        erofs_oracles::walk(&data);
        erofs_oracles::engine(&data);
    }
}

/// Some mutants of each image; `crates/erofast/tests/mutants.rs` tests as many as requested.
#[test]
fn mutants_of_good_images_hold_the_promises_for_hostile_ones() {
    for data in images(&fixtures()) {
        let Some(mutator) = Mutator::new(&data) else {
            continue;
        };
        for number in 0..8 {
            let mutant = mutator.mutant(number);
            assert_eq!(mutant, mutator.mutant(number), "not the same again");
            assert_ne!(mutant, data);
            erofs_oracles::walk(&mutant);
            erofs_oracles::engine(&mutant);
        }
    }
}
