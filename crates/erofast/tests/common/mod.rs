//! Test images and their manifests, and code that compares the two through the engine.
pub mod failure;
pub mod manifest;
pub mod other;
pub mod verify;
pub mod watch;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};

use erofs_engine::{EngineOptions, Offset};

/// A resource that concurrent tests share; the last test that holds it drops it.
pub struct Shared<T>(Mutex<Weak<T>>);

impl<T> Shared<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// The existing resource, or the one that `make` creates.
    pub fn get(&self, make: impl FnOnce() -> Option<T>) -> Option<Arc<T>> {
        let mut shared = self.0.lock().expect("no panic");
        if let Some(made) = shared.upgrade() {
            return Some(made);
        }
        let made = Arc::new(make()?);
        *shared = Arc::downgrade(&made);
        Some(made)
    }
}

/// The program under test: the one built with the tests, or the one that EROFAST_PROGRAM names,
/// possibly preceded by an emulator (scripts/test-program).
pub fn erofast() -> Command {
    other::other_program().unwrap_or_else(|| Command::new(env!("CARGO_BIN_EXE_erofast")))
}

/// Copies the program in another process. If this process wrote the copy, children that other tests
/// start would hold it open for writing until they exec, and a file that is open for writing cannot
/// be executed.
pub fn copy_program(to: &Path) {
    let mut copy = Command::new("cp");
    copy.arg("--remove-destination")
        .arg(env!("CARGO_BIN_EXE_erofast"));
    let copied = copy.arg(to).status();
    assert!(copied.expect("it starts").success());
}

/// The program that fetches images from URLs, if it is beside `erofast`.
pub fn fetcher() -> Option<PathBuf> {
    let fetcher = Path::new(env!("CARGO_BIN_EXE_erofast")).with_file_name("erofast-fetch");
    if fetcher.is_file() {
        return Some(fetcher);
    }
    println!("skipped: no erofast-fetch beside erofast: cargo build -p erofast-fetch");
    None
}

/// The image directories: the shared set beside the checkout, and the small set inside it.
pub fn image_sets() -> Vec<PathBuf> {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = crate_root.join("../../../shared/images");
    let mut sets = vec![fixtures()];
    if shared.is_dir() {
        sets.push(shared);
    }
    sets
}

/// The images of the repository.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// The malformed images; `manifest.jsonl` there says what is wrong with each.
pub fn bad_images() -> PathBuf {
    fixtures().join("bad")
}

/// The program that compares a tree with a manifest.
pub fn verify_tree() -> PathBuf {
    fixtures().join("tools/verify_tree.py")
}

/// A valid image.
#[derive(Clone, Debug)]
pub struct TestImage {
    pub name: String,
    pub path: PathBuf,
    pub devices: Vec<PathBuf>,
    pub offset: u64,
    pub manifest: PathBuf,
}

impl TestImage {
    pub fn options(&self) -> EngineOptions {
        EngineOptions {
            offset: Offset::Bytes(self.offset),
            devices: self.devices.clone(),
            ..EngineOptions::default()
        }
    }

    /// `--offset` and `--device` as command-line arguments.
    pub fn arguments(&self) -> Vec<String> {
        let devices = self
            .devices
            .iter()
            .flat_map(|d| ["--device".into(), d.display().to_string()]);
        ["--offset".to_owned(), self.offset.to_string()]
            .into_iter()
            .chain(devices)
            .collect()
    }

    /// The offset and devices as mount options.
    pub fn mount_options(&self) -> String {
        let devices = self
            .devices
            .iter()
            .map(|d| format!(",device={}", d.display()));
        format!("offset={}{}", self.offset, devices.collect::<String>())
    }
}

/// All valid images of a set, as its `manifest.tsv` lists them.
pub fn good_images(set: &Path) -> Vec<TestImage> {
    let table = std::fs::read_to_string(set.join("manifest.tsv")).expect("manifest.tsv");
    let images: Vec<_> = table
        .lines()
        .skip(1)
        .map(|line| {
            let mut columns = line.split('\t');
            let mut column = || columns.next().expect("a column").to_owned();
            let (name, _bytes, devices, offset) = (column(), column(), column(), column());
            TestImage {
                path: set.join(format!("{name}.erofs")),
                manifest: set.join(format!("{name}.jsonl")),
                devices: devices
                    .split(',')
                    .filter(|device| *device != "-")
                    .map(|device| set.join(device))
                    .collect(),
                offset: offset.parse().expect("an offset"),
                name,
            }
        })
        .collect();
    assert!(!images.is_empty(), "{} lists no images", set.display());
    images
}

/// All valid images of all sets.
pub fn all_good_images() -> Vec<TestImage> {
    image_sets()
        .iter()
        .flat_map(|set| good_images(set))
        .collect()
}
