//! Several images as one tree. The tree is compared with the kernel's overlayfs over the same
//! layers; further tests cover features that only tar archives have.

mod bad;
mod compare;
mod deaths;
mod generate;
mod lent;
mod registry;
mod stacks;
mod tar;
mod unpacked;
mod urls;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::erofast;

/// Mounts below a directory, which are unmounted when this is dropped.
struct Mounts {
    place: tempfile::TempDir,
    mounted: Vec<PathBuf>,
}

impl Mounts {
    fn new() -> Self {
        Self {
            place: tempfile::tempdir().expect("a directory"),
            mounted: Vec::new(),
        }
    }

    fn point(&self, name: &str) -> PathBuf {
        let point = self.place.path().join(name);
        fs::create_dir_all(&point).expect("a directory");
        point
    }

    /// The kernel's overlayfs over the kernel's mounts of the images, or the reason why it cannot
    /// be mounted.
    fn overlayfs(&mut self, images: &[PathBuf]) -> Result<PathBuf, String> {
        let mut lower = Vec::new();
        for (number, image) in images.iter().enumerate() {
            let point = self.point(&format!("lower{number}"));
            self.mount(&["-t", "erofs", "-o", "loop,ro"], image, &point)?;
            lower.push(point.display().to_string());
        }
        let point = self.point("overlay");
        let options = format!("ro,redirect_dir=follow,lowerdir={}", lower.join(":"));
        self.mount(
            &["-t", "overlay", "-o", &options],
            Path::new("overlay"),
            &point,
        )?;
        Ok(point)
    }

    fn mount(&mut self, flags: &[&str], source: &Path, point: &Path) -> Result<(), String> {
        let output = Command::new("mount")
            .args(flags)
            .arg(source)
            .arg(point)
            .output();
        let output = output.map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        self.mounted.push(point.to_owned());
        Ok(())
    }

    /// Our mount of the images.
    fn erofast(&mut self, images: &[PathBuf], options: &str) -> PathBuf {
        let point = self.point("ours");
        let lower = images[1..]
            .iter()
            .map(|image| format!(",lower={}", image.display()));
        let options = options.to_owned() + &lower.collect::<String>();
        let output = erofast()
            .args(["mount", "-o", &options])
            .args([&images[0], &point])
            .output()
            .expect("it starts");
        assert!(output.status.success(), "{output:?}");
        self.mounted.push(point.clone());
        point
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        for point in self.mounted.iter().rev() {
            let _ = Command::new("umount").arg(point).status();
        }
    }
}

/// Creates an image from each tree that `make` fills, the top one first; `None` without mkfs.erofs.
fn images(place: &Path, make: &[&dyn Fn(&Path)]) -> Option<Vec<PathBuf>> {
    let made = make.iter().enumerate().map(|(number, make)| {
        let tree = place.join(format!("tree{number}"));
        fs::create_dir(&tree).expect("a directory");
        make(&tree);
        let image = place.join(format!("layer{number}.erofs"));
        generate::image_of(&tree, &image, 1).map(|()| image)
    });
    let made: Option<Vec<_>> = made.collect();
    if made.is_none() {
        println!("skipped: no mkfs.erofs");
    }
    made
}

/// Writes files with these contents; a path that ends with a slash is a directory.
fn write(tree: &Path, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = tree.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        match content.is_empty() && path.to_string_lossy().ends_with('/') {
            true => fs::create_dir_all(&path).expect("a directory"),
            false => fs::write(&path, content).expect("room"),
        }
    }
}

/// The reason why this machine cannot create and compare layers.
fn missing() -> Option<&'static str> {
    let is_there = |path: &str| Path::new(path).exists();
    if !rustix::process::geteuid().is_root() {
        Some("not root")
    } else if !is_there("/dev/fuse") || !is_there("/dev/loop-control") {
        Some("no /dev/fuse or no loop devices")
    } else if Command::new("mkfs.erofs").output().is_err() {
        Some("no mkfs.erofs")
    } else {
        None
    }
}

/// Runs a command that reads the images without mounting them.
fn read(command: &str, images: &[PathBuf], arguments: &[&str]) -> Output {
    let mut erofast = erofast();
    erofast.arg(command).arg(&images[0]);
    for lower in &images[1..] {
        erofast.arg("--lower").arg(lower);
    }
    erofast.args(arguments).output().expect("it starts")
}

#[test]
fn generated_layers_are_what_overlayfs_makes_of_them() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    let mut entries = 0;
    for seed in 1..=64 {
        let mut mounts = Mounts::new();
        let count = if seed % 8 == 0 { 2 + seed / 8 } else { 2 };
        let Some(images) = generate::images(mounts.place.path(), seed, count) else {
            println!("skipped: no mkfs.erofs");
            return;
        };
        let overlay = match mounts.overlayfs(&images) {
            Ok(overlay) => overlay,
            Err(why) if seed == 1 => {
                println!("skipped: no overlayfs over EROFS here: {why}");
                return;
            }
            Err(why) => panic!("{why}"),
        };
        let ours = mounts.erofast(&images, "default_permissions");
        let (ours, theirs) = (compare::tree(&ours), compare::tree(&overlay));
        entries += theirs.len();
        let differences = compare::differences(&ours, &theirs);
        assert!(
            differences.is_empty(),
            "seed {seed}: {}",
            differences.join("\n")
        );
        let checked = read("check", &images, &[]);
        assert!(checked.status.success(), "seed {seed}: {checked:?}");
    }
    assert!(entries > 64 * 20, "{entries} entries");
}

#[test]
fn a_path_is_looked_up_below_through_directories_that_moved() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    let redirect = |tree: &Path, path: &str, value: &str| {
        let (path, flags) = (tree.join(path), rustix::fs::XattrFlags::empty());
        let (name, value) = ("trusted.overlay.redirect", value.as_bytes());
        rustix::fs::setxattr(path, name, value, flags).expect("an attribute");
    };
    let top = |tree: &Path| {
        write(tree, &[("y/c/", ""), ("y/d/", ""), ("y/e/", "")]);
        redirect(tree, "y/c", "/a/b");
        redirect(tree, "y/d", "/p/q/r");
        redirect(tree, "y/e", "/shut/b");
    };
    // Directories that were moved. What the redirects of `top` name below them exists only at their
    // old places.
    let middle = |tree: &Path| {
        write(tree, &[("a/", ""), ("p/q/", ""), ("shut/", "")]);
        redirect(tree, "a", "x");
        redirect(tree, "p/q", "/x");
        redirect(tree, "shut", "x");
        let (path, flags) = (tree.join("shut"), rustix::fs::XattrFlags::empty());
        rustix::fs::setxattr(path, "trusted.overlay.opaque", b"y", flags).expect("an attribute");
    };
    let base = |tree: &Path| write(tree, &[("x/b/f", "b"), ("x/r/f", "r"), ("a/b/no", "no")]);
    let mut mounts = Mounts::new();
    let place = mounts.place.path().to_owned();
    let Some(images) = images(&place, &[&top, &middle, &base]) else {
        return;
    };
    for (path, content) in [("/y/c/f", "b"), ("/y/d/f", "r")] {
        let output = read("cat", &images, &[path]);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            content,
            "{output:?}"
        );
    }
    for path in ["/y/c/no", "/y/e/f"] {
        let output = read("cat", &images, &[path]);
        assert!(!output.status.success(), "{path}: {output:?}");
    }
    let ours = mounts.erofast(&images, "ro");
    match mounts.overlayfs(&images) {
        Ok(overlay) => {
            let differences = compare::differences(&compare::tree(&ours), &compare::tree(&overlay));
            assert!(differences.is_empty(), "{}", differences.join("\n"));
        }
        Err(why) => println!("skipped: no overlayfs over EROFS here: {why}"),
    }
}

#[test]
fn a_hundred_layers_are_one_tree_in_one_server() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    let mut mounts = Mounts::new();
    let place = mounts.place.path().to_owned();
    let layer = |number: usize| {
        let name = format!("layer{number:03}");
        let image = place.join(&name).with_extension("erofs");
        let tree = place.join(&name);
        write(&tree, &[(&format!("d/{name}"), &name), ("d/all", &name)]);
        generate::image_of(&tree, &image, 0).expect("mkfs.erofs");
        image
    };
    let mut layers: Vec<_> = (0..128).map(layer).collect();
    let ours = mounts.erofast(&layers, "ro");
    assert_eq!(fs::read(ours.join("d/all")).expect("a file"), b"layer000");
    let names = fs::read_dir(ours.join("d")).expect("a directory");
    assert_eq!(names.count(), 129);
    let mut numbers = std::collections::HashSet::new();
    for number in 0..128 {
        let name = format!("layer{number:03}");
        let path = ours.join("d").join(&name);
        assert_eq!(fs::read_to_string(&path).expect("a file"), name);
        let metadata = fs::metadata(&path).expect("a file");
        assert!(numbers.insert(std::os::unix::fs::MetadataExt::ino(&metadata)));
    }
    let counters = erofast().args(["stat", "--json"]).arg(&ours).output();
    let counters = counters.expect("it starts").stdout;
    let counters: serde_json::Value = serde_json::from_slice(&counters).expect("counters");
    assert_eq!(counters["layers"].as_array().map(Vec::len), Some(128));
    crate::schema::check("stat", &counters);
    let info = read("info", &layers, &["--json"]).stdout;
    let info: serde_json::Value = serde_json::from_slice(&info).expect("a report");
    assert_eq!(info["layers"].as_array().map(Vec::len), Some(128));
    crate::schema::check("info", &info);
    layers.push(layers[0].clone());
    let refused = read("ls", &layers, &[]);
    let line = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && line.lines().count() == 1,
        "{line}"
    );
    assert!(line.contains("a tree of 129 images; at most 128"), "{line}");
}

#[test]
fn what_is_extracted_is_what_is_mounted() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    for seed in [7, 8] {
        extraction_shows_what_a_mount_shows(seed);
    }
}

fn extraction_shows_what_a_mount_shows(seed: u64) {
    let mut mounts = Mounts::new();
    let Some(images) = generate::images(mounts.place.path(), seed, 3) else {
        return;
    };
    let mounted = mounts.erofast(&images, "default_permissions");
    let directory = mounts.place.path().join("extracted");
    let extracted = read("extract", &images, &[directory.to_str().expect("UTF-8")]);
    assert!(extracted.status.success(), "{extracted:?}");
    let (mounted, extracted) = (compare::tree(&mounted), compare::tree(&directory));
    let names = |shown: &compare::Shown| shown.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&mounted), names(&extracted));
    let is_content = |line: &&String| line.starts_with("content") || line.starts_with("leads");
    for (path, lines) in &mounted {
        let ours = lines.iter().filter(is_content);
        assert!(
            ours.eq(extracted[path].iter().filter(is_content)),
            "{}",
            path.display()
        );
    }
}
