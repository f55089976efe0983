//! Everything that fuzzing ever found, and all malformed images, through the same oracles.

use std::fs;
use std::path::{Path, PathBuf};

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
    let mut targets: Vec<String> = files(&workspace().join("fuzz/fuzz_targets"))
        .iter()
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    let mut oracles = erofs_oracles::TARGETS.map(|(name, _)| name.to_owned());
    targets.sort();
    oracles.sort();
    assert_eq!(targets, oracles);
}

#[test]
fn the_test_images_hold_all_promises() {
    let images = workspace().join("../shared/images");
    let good = files(&images);
    if good.is_empty() {
        println!("skipped: no test images at {}", images.display());
        return;
    }
    for path in good.into_iter().chain(files(&images.join("bad"))) {
        if path
            .extension()
            .is_none_or(|extension| extension != "erofs")
        {
            continue;
        }
        println!("{}", path.display());
        let data = fs::read(&path).expect("an image reads");
        erofs_oracles::opening(&data);
        erofs_oracles::xattrs(&data);
        erofs_oracles::extents(&data);
        erofs_oracles::walk(&data);
    }
}
