//! The trees of the suite: many small files and few large ones, copied from installed software.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};

use super::part::Part;
use super::tree::Tree;
use crate::read::{Test, walk};

pub(super) const FILES: [Part; 2] = [
    Part {
        tests: &[Test::Tree, Test::List, Test::Metadata],
        ..Part::program("small-files", "many small files", small)
    },
    Part {
        tests: &LARGE_TESTS,
        ..Part::program("large-files", "few large files", large)
    },
];

const fn random(kib: usize, jobs: usize) -> Test {
    let block = kib << 10;
    Test::Random { block, jobs }
}

const LARGE_TESTS: [Test; 6] = [
    Test::Sequential { readers: 1 },
    Test::Sequential { readers: 4 },
    random(4, 1),
    random(4, 4),
    random(64, 1),
    random(64, 4),
];

const SMALL: u64 = 16 << 10;
const MOST_SMALL: usize = 8000;
const FEWEST_SMALL: usize = 500;
const SMALL_PLACES: [&str; 4] = [
    "/usr/share/doc",
    "/usr/include",
    "/usr/share/zoneinfo",
    "/usr/share/perl",
];

const LARGE: u64 = 4 << 20;
const LARGEST: u64 = 128 << 20;
const MOST_BYTES: u64 = 208 << 20;
const FEWEST_BYTES: u64 = 32 << 20;
const LARGE_PLACES: [&str; 3] = ["/usr/lib", "/usr/bin", "/usr/share"];

/// The files in `places` that `wanted` selects, with their sizes and ordered by path.
fn found(places: &[&str], wanted: impl Fn(&Metadata) -> bool) -> Vec<(PathBuf, u64)> {
    let mut files = Vec::new();
    for place in places {
        // A place that is missing, or that changes while it is read, contributes fewer files.
        let _ = walk(Path::new(place), &mut |path, metadata| {
            if metadata.is_file() && wanted(metadata) {
                files.push((path.to_owned(), metadata.len()));
            }
            Ok(())
        });
    }
    files.sort();
    files
}

fn small(tree: &Tree) -> io::Result<Vec<String>> {
    let files = found(&SMALL_PLACES, |metadata| {
        (1..=SMALL).contains(&metadata.len())
    });
    if files.len() < FEWEST_SMALL {
        return Err(io::Error::other(format!(
            "{} small files in {}",
            files.len(),
            SMALL_PLACES.join(", ")
        )));
    }
    // Takes files at regular intervals from the list, so that a few large directories do not
    // dominate.
    let step = files.len().div_ceil(MOST_SMALL);
    for (path, _) in files.iter().step_by(step) {
        tree.file(path)?;
    }
    Ok(Vec::new())
}

fn large(tree: &Tree) -> io::Result<Vec<String>> {
    let mut files = found(&LARGE_PLACES, |metadata| {
        (LARGE..=LARGEST).contains(&metadata.len())
    });
    files.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut bytes = 0;
    for (path, length) in files {
        if bytes + length <= MOST_BYTES {
            bytes += length;
            tree.file(&path)?;
        }
    }
    match bytes >= FEWEST_BYTES {
        true => Ok(Vec::new()),
        false => Err(io::Error::other(format!(
            "{} MiB of large files in {}",
            bytes >> 20,
            LARGE_PLACES.join(", ")
        ))),
    }
}
