//! Images with several layers in a registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use super::deaths::replace;
use super::{Mounts, compare, generate, missing, write};
use crate::common::{erofast, fetcher};
use crate::repository::{EROFS, Repository, TAR};

const TAR_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

fn stat(mount: &Path) -> serde_json::Value {
    let output = erofast().args(["stat", "--json"]).arg(mount).output();
    serde_json::from_slice(&output.expect("it starts").stdout).expect("counters")
}

/// Runs the command with this cache directory.
fn run(command: &str, cache: &Path, image: &Path, arguments: &[&str]) -> std::process::Output {
    let mut erofast = erofast();
    erofast
        .arg(command)
        .arg("--cache-dir")
        .arg(cache)
        .arg(image);
    erofast.args(arguments).output().expect("it starts")
}

#[test]
fn an_image_of_several_layers_is_one_tree_that_outlives_its_processes() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    if fetcher().is_none() {
        return;
    }
    let mut here = Mounts::new();
    let Some(mut images) = generate::images(here.place.path(), 21, 5) else {
        return;
    };
    // Manifests repeat layers, most often the empty one.
    images.insert(2, images[2].clone());
    let registry = Repository::new();
    // A manifest lists the lowest layer first.
    let put = |image: &PathBuf| registry.put_blob(&fs::read(image).expect("an image"), EROFS);
    let layers: Vec<_> = images.iter().rev().map(put).collect();
    registry.put_manifest("v1", &json!({ "layers": layers }));
    let expected = here.erofast(&images, "default_permissions");
    let expected = compare::tree(&expected);
    let mut mounts = Mounts::new();
    let cache = mounts.point("cache");
    let options = format!("default_permissions,cache_dir={}", cache.display());
    let image = PathBuf::from(registry.url(":v1"));
    let ours = mounts.erofast(std::slice::from_ref(&image), &options);
    let same = || {
        let differences = compare::differences(&compare::tree(&ours), &expected);
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    };
    same();
    let counters = stat(&ours);
    assert_eq!(
        counters["layers"].as_array().map(Vec::len),
        Some(6),
        "{counters}"
    );
    assert_eq!(
        counters["remote"].as_array().map(Vec::len),
        Some(6),
        "{counters}"
    );
    if replace(&ours) {
        same();
    }
    let upgraded = erofast()
        .arg("upgrade")
        .arg(&ours)
        .output()
        .expect("it starts");
    assert!(upgraded.status.success(), "{upgraded:?}");
    same();
    let checked = run("check", &cache, &image, &[]);
    assert!(checked.status.success(), "{checked:?}");
    // Fetches the whole image, then works without the registry.
    let fetched = erofast()
        .args(["cache", "fetch", "--cache-dir"])
        .args([&cache, &image])
        .output();
    let fetched = fetched.expect("it starts");
    assert!(fetched.status.success(), "{fetched:?}");
    let list = erofast()
        .args(["cache", "list", "--cache-dir"])
        .arg(&cache)
        .output();
    for printed in [fetched.stdout, list.expect("it starts").stdout] {
        let printed = String::from_utf8_lossy(&printed).into_owned();
        let line = format!("{} (top layer of {}): ", image.display(), images.len());
        assert_eq!(printed.matches(&line).count(), 1, "{printed}");
    }
    drop(mounts.mounted.pop());
    let gone = Command::new("umount").arg(&ours).status().expect("umount");
    assert!(gone.success());
    registry.asked();
    let options = options + ",offline=on";
    let again = mounts.erofast(std::slice::from_ref(&image), &options);
    let differences = compare::differences(&compare::tree(&again), &expected);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(registry.asked().is_empty());
}

#[test]
fn archives_and_images_are_layers_of_one_tree() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    if fetcher().is_none() {
        return;
    }
    let mut mounts = Mounts::new();
    let place = mounts.place.path().to_owned();
    let archive = |name: &str, files: &[(&str, &str)]| {
        let tree = place.join(name);
        write(&tree, files);
        let file = place.join(name.to_owned() + ".tar");
        let status = Command::new("tar")
            .arg("-cf")
            .arg(&file)
            .arg("-C")
            .arg(&tree)
            .arg(".")
            .status();
        assert!(status.expect("tar").success());
        let status = Command::new("gzip").arg("-f").arg(&file).status();
        assert!(status.expect("gzip").success());
        fs::read(place.join(name.to_owned() + ".tar.gz")).expect("an archive")
    };
    let base = archive(
        "base",
        &[("d/gone", "x"), ("d/kept", "base"), ("e/hidden", "x")],
    );
    let middle = place.join("middle");
    write(&middle, &[("d/middle", "middle"), ("e/hidden2", "x")]);
    let image = place.join("middle.erofs");
    if generate::image_of(&middle, &image, 1).is_none() {
        println!("skipped: no mkfs.erofs");
        return;
    }
    let top = archive(
        "top",
        &[
            ("d/.wh.gone", ""),
            ("d/top", "top"),
            ("e/.wh..wh..opq", ""),
            ("e/top", "x"),
        ],
    );
    let registry = Repository::new();
    let layers = [
        registry.put_blob(&base, TAR_GZIP),
        registry.put_blob(&fs::read(&image).expect("an image"), EROFS),
        registry.put_blob(&top, TAR_GZIP),
    ];
    let diff_id = |name: &str| {
        let zipped = place.join(name.to_owned() + ".tar.gz");
        let output = Command::new("gzip")
            .arg("-dc")
            .arg(zipped)
            .output()
            .expect("gzip");
        crate::repository::digest(&output.stdout)
    };
    let image_digest = layers[1]["digest"].clone();
    let rootfs = json!({
        "type": "layers",
        "diff_ids": [diff_id("base"), image_digest, diff_id("top")],
    });
    let config = json!({ "architecture": "amd64", "os": "linux", "rootfs": rootfs }).to_string();
    let config = registry.put_blob(
        config.as_bytes(),
        "application/vnd.oci.image.config.v1+json",
    );
    registry.put_manifest("v1", &json!({ "config": config, "layers": layers }));
    let cache = mounts.point("cache");
    let image = PathBuf::from(registry.url(":v1"));
    let listed = run("ls", &cache, &image, &["-R", "--json"]);
    let why = String::from_utf8_lossy(&listed.stderr).into_owned();
    if !listed.status.success() && why.contains("mkfs.erofs") {
        println!("skipped: {why}");
        return;
    }
    assert!(listed.status.success(), "{listed:?}");
    let options = format!("cache_dir={}", cache.display());
    let ours = mounts.erofast(std::slice::from_ref(&image), &options);
    let names = compare::tree(&ours).into_keys();
    let names: Vec<_> = names.map(|path| path.display().to_string()).collect();
    assert_eq!(
        names,
        ["", "d", "d/kept", "d/middle", "d/top", "e", "e/top"]
    );
    assert_eq!(
        fs::read_to_string(ours.join("d/kept")).expect("a file"),
        "base"
    );
}

/// A layer that is named individually, as by containerd, shows its whiteouts, because an overlayfs
/// needs them.
#[test]
fn the_only_layer_shows_no_whiteouts_unless_it_is_named_as_a_layer() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    if fetcher().is_none() {
        return;
    }
    let mut mounts = Mounts::new();
    let tree = mounts.place.path().join("tree");
    write(
        &tree,
        &[
            ("a", "a"),
            (".wh.gone", ""),
            ("d/.wh.q", ""),
            ("d/x", "x"),
            ("o/.wh..wh..opq", ""),
            ("o/y", "y"),
        ],
    );
    let tar = Command::new("tar")
        .arg("-C")
        .arg(&tree)
        .args(["-cf", "-", "."])
        .output();
    let registry = Repository::new();
    let layer = registry.put_blob(&tar.expect("tar").stdout, TAR);
    let manifest = registry.put_manifest("v1", &json!({ "layers": [layer] }));
    let cache = mounts.point("cache");
    let image = PathBuf::from(registry.url(":v1"));
    let checked = run("check", &cache, &image, &[]);
    let why = String::from_utf8_lossy(&checked.stderr).into_owned();
    if !checked.status.success() && why.contains("mkfs.erofs") {
        println!("skipped: {why}");
        return;
    }
    assert!(checked.status.success(), "{checked:?}");
    let listed = run("ls", &cache, &image, &["-R"]);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(listed.contains('a') && !listed.contains("gone"), "{listed}");
    let options = format!("cache_dir={}", cache.display());
    let names = |mounts: &mut Mounts, image: PathBuf| {
        let ours = mounts.erofast(&[image], &options);
        let names = compare::tree(&ours).into_keys();
        let names: Vec<_> = names.map(|path| path.display().to_string()).collect();
        names
    };
    let shown = ["", "a", "d", "d/x", "o", "o/y"];
    assert_eq!(names(&mut mounts, image), shown);
    let pinned = PathBuf::from(registry.url(&format!("@{manifest}")));
    assert_eq!(names(&mut Mounts::new(), pinned), shown);
    let digest = layer["digest"].as_str().expect("a digest");
    let layer = registry.url(&format!("@{manifest}#layer={digest}"));
    assert_eq!(
        names(&mut Mounts::new(), layer.into()),
        ["", "a", "d", "d/q", "d/x", "gone", "o", "o/y"]
    );
}
