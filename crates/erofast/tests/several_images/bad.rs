//! Layers that contradict themselves: reading them reports one line and ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::XattrFlags;

use super::{Mounts, images, missing, read, write};

fn refused(command: &str, images: &[PathBuf], arguments: &[&str]) -> String {
    let output = read(command, images, arguments);
    let line = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    line + &String::from_utf8_lossy(&output.stdout)
}

#[test]
fn a_whiteout_of_what_cannot_be_removed_is_a_fault_with_one_line() {
    for name in [".wh.", ".wh..", ".wh..."] {
        let place = tempfile::tempdir().expect("a directory");
        let path = format!("d/{name}");
        let bad = |tree: &Path| write(tree, &[(&path, "x"), ("d/a", "x")]);
        let good = |tree: &Path| write(tree, &[("d/b", "x"), ("c", "x")]);
        let Some(images) = images(place.path(), &[&bad, &good]) else {
            return;
        };
        let directory = place.path().join("out");
        let directory = directory.to_str().expect("UTF-8");
        for (command, arguments) in [("check", &[][..]), ("extract", &[directory])] {
            let lines = refused(command, &images, arguments);
            let named = lines
                .lines()
                .filter(|line| line.contains("layer0.erofs: nid"));
            assert_eq!(named.count(), 1, "{name}: {lines}");
            assert!(
                lines.contains("a whiteout of a name that cannot be removed"),
                "{lines}"
            );
        }
        // The entry's neighbours are not lost.
        let extracted = fs::read_dir(Path::new(directory).join("d")).expect("a directory");
        assert_eq!(extracted.count(), 2);
    }
}

#[test]
fn redirects_that_lead_nowhere_or_in_circles_end() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    for (value, is_valid) in [
        ("/d", true),
        ("d", true),
        ("/d/d/d/d", true),
        ("/nowhere/at/all", true),
        ("..", false),
        ("/../../etc", false),
        ("a/b", false),
        ("", false),
    ] {
        let place = tempfile::tempdir().expect("a directory");
        let with_redirect = |tree: &Path| {
            write(tree, &[("d/d/own", "x")]);
            for path in ["d", "d/d"] {
                let (path, name) = (tree.join(path), "trusted.overlay.redirect");
                let set = rustix::fs::setxattr(path, name, value.as_bytes(), XattrFlags::empty());
                set.expect("an attribute");
            }
        };
        let make: [&dyn Fn(&Path); 3] = [&with_redirect, &with_redirect, &with_redirect];
        let Some(images) = images(place.path(), &make) else {
            return;
        };
        let output = read("check", &images, &[]);
        assert_eq!(output.status.success(), is_valid, "{value}: {output:?}");
        if !is_valid {
            let lines = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(
                lines.contains("a redirect that is not a path"),
                "{value}: {output:?}"
            );
        }
    }
}

#[test]
fn a_file_whose_content_is_elsewhere_is_an_error_and_not_zeros() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    let mut mounts = Mounts::new();
    let place = mounts.place.path().to_owned();
    let top = |tree: &Path| {
        write(tree, &[("d/f", ""), ("d/g", "own")]);
        let path = tree.join("d/f");
        fs::File::create(&path)
            .and_then(|file| file.set_len(100_000))
            .expect("room");
        let (name, flags) = ("trusted.overlay.metacopy", XattrFlags::empty());
        rustix::fs::setxattr(path, name, b"", flags).expect("an attribute");
    };
    let base = |tree: &Path| write(tree, &[("d/f", "content")]);
    let Some(images) = images(&place, &[&top, &base]) else {
        return;
    };
    let line = refused("cat", &images, &["/d/f"]);
    assert!(
        line.contains("overlay.metacopy") && line.lines().count() == 1,
        "{line}"
    );
    let extracted = place.join("out");
    let directory = extracted.to_str().expect("UTF-8");
    for (command, arguments) in [("check", &[][..]), ("extract", &[directory])] {
        let lines = refused(command, &images, arguments);
        assert!(lines.contains("overlay.metacopy"), "{command}: {lines}");
    }
    let stream = read("extract", &images, &["-"]);
    assert_eq!(stream.status.code(), Some(1), "{stream:?}");
    let ours = mounts.erofast(&images, "ro");
    for directory in [extracted.join("d"), ours.join("d")] {
        // Listings may pass the kernel the attributes of files, which it then need not look up.
        let listing = Command::new("ls").arg("-l").arg(&directory).output();
        listing.expect("ls starts");
        assert!(fs::read(directory.join("f")).is_err(), "{directory:?}");
        assert_eq!(fs::read(directory.join("g")).expect("a file"), b"own");
    }
}

#[test]
fn a_layer_that_is_no_image_is_named() {
    let place = tempfile::tempdir().expect("a directory");
    let other = place.path().join("other");
    fs::write(&other, vec![0; 8192]).expect("room");
    let Some(mut images) = images(place.path(), &[&|tree| write(tree, &[("f", "x")])]) else {
        return;
    };
    images.push(other.clone());
    let line = refused("ls", &images, &[]);
    let name = other.display().to_string();
    assert!(line.contains(&name) && line.lines().count() == 1, "{line}");
    images[1] = place.path().join("nothing");
    let line = refused("ls", &images, &[]);
    assert!(
        line.contains("nothing: ") && line.lines().count() == 1,
        "{line}"
    );
}
