//! Whiteouts in the form used by tar archives: files with special names.

use std::fs;
use std::path::Path;

use super::{images, read, write};

/// The listing of the whole tree.
fn listed(place: &Path, make: &[&dyn Fn(&Path)]) -> Option<Vec<String>> {
    let images = images(place, make)?;
    let output = read("ls", &images, &["-R", "--json"]);
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let path = |line: &str| {
        let entry: serde_json::Value = serde_json::from_str(line).expect("an entry");
        entry["path"].as_str().expect("a path").to_owned()
    };
    let checked = read("check", &images, &[]);
    assert!(checked.status.success(), "{checked:?}");
    Some(lines.lines().map(path).collect())
}

#[test]
fn a_name_that_begins_with_wh_hides_what_lies_below_and_itself() {
    let place = tempfile::tempdir().expect("a directory");
    let long = "n".repeat(250);
    let found = listed(
        place.path(),
        &[
            &|tree| {
                write(
                    tree,
                    &[
                        ("a/.wh.gone", "x"),
                        ("a/.wh.d", "x"),
                        ("a/d/own", "x"),
                        ("a/.wh..wh.plnk/x", "x"),
                        (&format!("a/.wh.{long}"), "x"),
                        ("opaque/.wh..wh..opq", "x"),
                        ("opaque/own", "x"),
                    ],
                );
            },
            &|tree| {
                write(
                    tree,
                    &[
                        ("a/gone", "x"),
                        ("a/kept", "x"),
                        ("a/d/hidden", "x"),
                        (&format!("a/{long}"), "x"),
                        ("opaque/hidden", "x"),
                        // In this layer: only what is below it is hidden.
                        ("a/.wh.deep", "x"),
                        ("a/deep/own", "x"),
                    ],
                );
            },
            &|tree| {
                write(
                    tree,
                    &[
                        ("a/gone/too", "x"),
                        ("a/d/hidden2", "x"),
                        ("a/deep/hidden", "x"),
                        ("opaque/hidden2", "x"),
                        ("only/.wh.mark", "x"),
                        ("only/kept", "x"),
                    ],
                );
            },
        ],
    );
    let Some(found) = found else { return };
    let expected = [
        "a",
        "a/d",
        "a/deep",
        "a/kept",
        "a/d/own",
        "a/deep/own",
        "only",
        "only/kept",
        "opaque",
        "opaque/own",
    ];
    let sorted = |names: &[String]| {
        let mut names = names.to_vec();
        names.sort();
        names
    };
    let expected: Vec<_> = expected.map(str::to_owned).into();
    assert_eq!(sorted(&found), sorted(&expected));
}

#[test]
fn an_opaque_root_hides_all_that_is_below() {
    let place = tempfile::tempdir().expect("a directory");
    let found = listed(
        place.path(),
        &[
            &|tree| write(tree, &[("top", "x")]),
            &|tree| write(tree, &[(".wh..wh..opq", ""), ("middle", "x")]),
            &|tree| write(tree, &[("hidden", "x")]),
        ],
    );
    let Some(found) = found else { return };
    assert_eq!(found, ["middle", "top"]);
}

#[test]
fn a_single_image_shows_what_it_has() {
    let place = tempfile::tempdir().expect("a directory");
    let found = listed(
        place.path(),
        &[&|tree| {
            write(tree, &[("d/.wh.x", "x")]);
            fs::write(tree.join("y"), "x").expect("room");
        }],
    );
    let Some(found) = found else { return };
    assert_eq!(found, ["d", "y", "d/.wh.x"]);
}
