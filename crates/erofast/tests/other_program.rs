//! A program built in another way, possibly for another architecture, prints the same as ours.
//!
//! scripts/test-program runs these tests, and those of images, extraction and checks, with such a
//! program.

use crate::common::other::{both, compare};
use crate::common::{all_good_images, bad_images};

const OURS: &str = env!("CARGO_BIN_EXE_erofast");

#[test]
fn it_says_the_same_of_every_good_image() {
    if both(OURS).is_none() {
        return;
    }
    let mut report = Vec::new();
    for image in all_good_images() {
        let options = image.arguments();
        let path = image.path.display().to_string();
        for command in [["info", "--json"], ["ls", "-lR"], ["check", "--json"]] {
            let words = command
                .into_iter()
                .chain(options.iter().map(String::as_str));
            let arguments: Vec<_> = words.chain([path.as_str()]).collect();
            compare(OURS, &arguments, &mut report);
        }
    }
    assert!(report.is_empty(), "{}", report.join("\n"));
}

#[test]
fn it_says_the_same_of_every_malformed_image() {
    if both(OURS).is_none() {
        return;
    }
    let bad = bad_images();
    let mut report = Vec::new();
    for entry in bad.read_dir().expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|name| name == "erofs") {
            compare(
                OURS,
                &["check", "--json", &path.display().to_string()],
                &mut report,
            );
        }
    }
    assert!(report.is_empty(), "{}", report.join("\n"));
}
