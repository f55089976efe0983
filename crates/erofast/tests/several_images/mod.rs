//! Several images as one tree: beside the kernel's overlayfs over the same layers, and what only
//! tar archives have.

mod compare;
mod generate;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::erofast;

/// Mounts below a directory, which are gone with this.
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

    /// The kernel's overlayfs over the kernel's mounts of the images; why not, if it cannot.
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

    /// Ours.
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

/// Why layers cannot be made and compared here.
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

/// A run of the command that reads the images without mounting them.
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
