//! Whiteouts in the form that tar archives use: files with special names.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::time::UNIX_EPOCH;

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
                        // Hides only entries of lower layers, not `a/deep` in its own layer.
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

/// Imitates what mkfs.erofs makes of an archive that has a file but not its directory.
#[test]
fn a_directory_that_an_archive_implies_has_the_attributes_of_those_below() {
    let place = tempfile::tempdir().expect("a directory");
    let set = |path: &Path, mode: u32, owner: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
        chown(path, Some(owner), Some(owner)).is_ok()
            && fs::File::open(path).is_ok_and(|file| file.set_modified(UNIX_EPOCH).is_ok())
    };
    let is_root = Cell::new(true);
    let make: [&dyn Fn(&Path); 2] = [
        &|tree| {
            write(
                tree,
                &[
                    ("d/new", "x"),
                    ("opaque/.wh..wh..opq", ""),
                    ("opaque/new", "x"),
                ],
            );
            set(&tree.join("opaque"), 0o777, 65534);
            is_root.set(set(&tree.join("d"), 0o777, 65534));
        },
        &|tree| {
            write(tree, &[("d/secret", "x"), ("opaque/secret", "x")]);
            set(&tree.join("opaque"), 0o1700, 1000);
            set(&tree.join("d"), 0o700, 1000);
        },
    ];
    let Some(images) = images(place.path(), &make) else {
        return;
    };
    if !is_root.get() {
        return println!("skipped: only root may give a directory to others");
    }
    let output = read("ls", &images, &["-R", "--json"]);
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    let entries = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("an entry"));
    let entries: Vec<serde_json::Value> = entries.collect();
    let found = |path: &str| entries.iter().find(|entry| entry["path"] == path);
    // An opaque directory hides the entries of lower layers, but still has the attributes of the
    // directory there.
    for (path, mode) in [("d", "0700"), ("opaque", "1700")] {
        let directory = found(path).expect("it is there");
        assert_eq!(
            (&directory["mode"], &directory["uid"]),
            (&mode.into(), &1000.into()),
            "{path}"
        );
    }
    assert!(found("d/secret").is_some(), "{lines}");
    assert!(found("opaque/secret").is_none(), "{lines}");
}
