//! Directories that an archive only implies: they have the attributes of the same directories in
//! the layers below, as a runtime would set them. The marks are those of layers that
//! `erofast-fetch` has rewritten.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use rustix::fs::XattrFlags;

use super::{Mounts, images, missing, write};

const IMPLIED: &str = "trusted.overlay.erofast.implied";
const REWRITTEN: &str = "trusted.overlay.erofast.rewritten";

fn attribute(path: &Path, name: &str, value: &str) {
    let set = rustix::fs::setxattr(path, name, value.as_bytes(), XattrFlags::empty());
    set.expect("an attribute");
}

/// Sets mode and owner of a directory in a layer.
fn set(path: &Path, mode: u32, owner: u32) {
    chown(path, Some(owner), Some(owner + 1)).expect("root");
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("root");
}

/// Returns mode and owner.
fn shown(path: &Path) -> (u32, u32, u32) {
    let found = fs::metadata(path).expect("it is there");
    (found.mode() & 0o7777, found.uid(), found.gid())
}

fn value(path: &Path, name: &str) -> Option<String> {
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).ok()?;
    Some(String::from_utf8_lossy(&value[..length]).into_owned())
}

fn listed(path: &Path) -> Vec<String> {
    let mut names = [0; 1024];
    let length = rustix::fs::listxattr(path, &mut names[..]).expect("a list");
    let names = String::from_utf8_lossy(&names[..length]).into_owned();
    let names = names.split_terminator('\0').map(str::to_owned);
    names
        .filter(|name| !name.starts_with("security."))
        .collect()
}

fn top(tree: &Path) {
    write(
        tree,
        &[
            ("opaque/in/new", "x"),
            ("link/new", "x"),
            ("later/new", "x"),
            ("new/group/file", "x"),
            ("nowhere/file", "x"),
            (".wh.name/file", "x"),
        ],
    );
    attribute(tree, REWRITTEN, "y");
    attribute(&tree.join("opaque"), "trusted.overlay.opaque", "y");
    for implied in ["opaque/in", "link", "new", "nowhere"] {
        set(&tree.join(implied), 0o755, 0);
        chown(tree.join(implied), Some(0), Some(0)).expect("root");
        attribute(&tree.join(implied), IMPLIED, "y");
    }
    let group = tree.join("new/group");
    chown(&group, Some(0), Some(0)).expect("root");
    attribute(&group, IMPLIED, "p");
    set(&tree.join("later"), 0o711, 5);
    attribute(&tree.join("later"), IMPLIED, "x");
    attribute(&tree.join("later"), "user.both", "top");
}

fn middle(tree: &Path) {
    write(tree, &[("name", "hidden"), ("target/file", "x")]);
    symlink("d/../target", tree.join("link")).expect("a link");
    fs::create_dir(tree.join("d")).expect("a directory");
    set(&tree.join("target"), 0o700, 1000);
    attribute(tree, REWRITTEN, "y");
}

fn low(tree: &Path) {
    write(
        tree,
        &[
            ("opaque/in/hidden", "x"),
            ("later/below", "x"),
            ("link/hidden", "x"),
            ("new/below", "x"),
        ],
    );
    set(&tree.join("opaque/in"), 0o1777, 7);
    attribute(&tree.join("opaque/in"), "user.lent", "low");
    set(&tree.join("later"), 0o777, 9);
    for (name, value) in [
        ("user.both", "low"),
        ("user.low", "low"),
        ("trusted.low", "x"),
    ] {
        attribute(&tree.join("later"), name, value);
    }
    set(&tree.join("new"), 0o2750, 30);
}

#[test]
fn implied_directories_have_attributes_of_those_below_even_of_hidden_ones() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    let mut mounts = Mounts::new();
    let Some(images) = images(mounts.place.path(), &[&top, &middle, &low]) else {
        return;
    };
    let ours = mounts.erofast(&images, "default_permissions");
    let at = |path: &str| ours.join(path);
    // In an opaque directory, the entries of lower layers are hidden, but the attributes of their
    // directories are used.
    assert_eq!(shown(&at("opaque/in")), (0o1777, 7, 8));
    assert_eq!(value(&at("opaque/in"), "user.lent").as_deref(), Some("low"));
    assert_eq!(listed(&at("opaque/in")), ["user.lent"]);
    assert!(!at("opaque/in/hidden").exists());
    // This directory replaces a symbolic link, and has the attributes of the directory that the
    // link leads to.
    assert_eq!(shown(&at("link")), (0o700, 1000, 1001));
    assert!(at("link/new").exists() && !at("link/hidden").exists());
    // The archive implies this directory first and states it later: only extended attributes that
    // it lacks come from the layers below.
    assert_eq!(shown(&at("later")), (0o711, 5, 6));
    let mut names = listed(&at("later"));
    names.sort_unstable();
    assert_eq!(names, ["user.both", "user.low"]);
    assert_eq!(value(&at("later"), "user.both").as_deref(), Some("top"));
    assert_eq!(value(&at("later"), "user.low").as_deref(), Some("low"));
    assert_eq!(value(&at("later"), "trusted.low"), None);
    // This directory is created in a set-group-ID directory, whose group it inherits.
    assert_eq!(shown(&at("new")), (0o2750, 30, 31));
    assert_eq!(shown(&at("new/group")), (0o755, 0, 31));
    assert_eq!(shown(&at("nowhere")), (0o755, 0, 0));
    // An ordinary name, not a whiteout.
    assert!(at(".wh.name/file").exists());
    assert_eq!(fs::read(at("name")).expect("a file"), b"hidden");
    let names: Vec<_> = fs::read_dir(&ours).expect("a directory").collect();
    let has = |name: &str| {
        let mut names = names.iter().flatten();
        names.any(|entry| entry.file_name() == name)
    };
    assert!(has(".wh.name") && has("name"));
}

/// erofast-snapshotter asks for the marks by name.
#[test]
fn marks_of_a_single_layer_are_not_listed() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    let mut mounts = Mounts::new();
    let Some(images) = images(mounts.place.path(), &[&top]) else {
        return;
    };
    let ours = mounts.erofast(&images, "default_permissions");
    assert!(listed(&ours).is_empty(), "{:?}", listed(&ours));
    assert_eq!(value(&ours, REWRITTEN).as_deref(), Some("y"));
    let later = ours.join("later");
    assert_eq!(listed(&later), ["user.both"]);
    assert_eq!(value(&later, IMPLIED).as_deref(), Some("x"));
    assert_eq!(listed(&ours.join("opaque")), ["trusted.overlay.opaque"]);
}
