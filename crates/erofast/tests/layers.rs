//! The dependency directions of the workspace: only the arrows below are allowed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A crate, and the crates of the workspace that it may use.
const ARROWS: &[(&str, &[&str])] = &[
    (
        "erofast",
        &[
            "erofast-cli",
            "erofs-mount",
            "erofs-engine",
            "launch-profile",
            "man-page",
            "sys",
        ],
    ),
    (
        "erofast-lab",
        &[
            "erofast-cli",
            "erofs-mount",
            "latency-lab",
            "sched-trace",
            "sys",
        ],
    ),
    ("erofast-cli", &["erofs-mount", "sys"]),
    (
        "erofs-mount",
        &[
            "confinement",
            "erofs-engine",
            "erofs-fuse",
            "figures",
            "fuse-transport",
            "launch-profile",
            "look-ahead",
            "sys",
        ],
    ),
    (
        "erofs-fuse",
        &[
            "confinement",
            "erofs-engine",
            "figures",
            "fuse-transport",
            "launch-profile",
            "look-ahead",
            "sys",
        ],
    ),
    (
        "erofs-engine",
        &[
            "erofs-format",
            "erofs-codecs",
            "cpu-workers",
            "page-pool",
            "dm-verity",
            "remote-image",
            "figures",
        ],
    ),
    ("liberofast", &["erofs-engine", "sys"]),
    ("latency-lab", &["sched-trace", "sys"]),
    ("fuse-transport", &["figures", "sys"]),
    ("cpu-workers", &["figures", "sys"]),
    ("page-pool", &["figures", "sys"]),
    ("sched-trace", &[]),
    // liblzma's MicroLZMA decoder has no safe binding; crate `sys` contains our binding.
    ("erofs-codecs", &["sys"]),
    ("erofs-format", &[]),
    ("launch-profile", &[]),
    // A client of the mount, which uses no code for images.
    ("look-ahead", &["launch-profile", "sys"]),
    ("dm-verity", &[]),
    // A program that parses images has no network code, and the program with network access has no
    // parser: another process, without a network, reads archives.
    (
        "erofast-fetch",
        &["confinement", "remote-image", "tar-layer"],
    ),
    ("tar-layer", &[]),
    ("confinement", &[]),
    // Starts programs; talks to containerd and the cluster's kubelet.
    ("erofast-snapshotter", &["sys"]),
    ("remote-image", &["figures"]),
    ("figures", &[]),
    ("man-page", &[]),
    ("sys", &[]),
    // Only tests use it, so this arrow is in no program.
    ("workspace-hack", &["sys"]),
    ("erofast-fuzz", &["erofs-oracles", "sched-trace"]),
    // For the fuzz targets and the tests that replay their findings.
    (
        "erofs-oracles",
        &[
            "erofs-format",
            "erofs-codecs",
            "erofs-engine",
            "launch-profile",
            "dm-verity",
        ],
    ),
];

/// Crates that may contain unsafe code, each with the files that may; an empty list permits all
/// files.
const UNSAFE: &[(&str, &[&str])] = &[
    ("sys", &[]),
    // Uses pointers from C callers.
    ("liberofast", &["exports.rs", "pointers.rs"]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("workspace root")
}

/// The crates of the workspace and the workspace crates that each uses, without dev-dependencies: a
/// test may use any crate.
fn workspace() -> BTreeMap<String, Vec<String>> {
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--locked",
            "--offline",
            "--format-version=1",
        ])
        .current_dir(root())
        .output()
        .expect("cargo metadata runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let name = |value: &serde_json::Value| value["name"].as_str().expect("a name").to_owned();
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().expect("dependencies");
            let ours = dependencies
                .iter()
                .filter(|dependency| !dependency["path"].is_null() && dependency["kind"] != "dev");
            (name(package), ours.map(name).collect())
        })
        .collect()
}

#[test]
fn dependencies_point_one_way() {
    let allowed: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    for (from, uses) in workspace() {
        let arrows = allowed.get(from.as_str());
        let arrows = arrows.unwrap_or_else(|| panic!("{from} has no entry in ARROWS"));
        for to in uses {
            assert!(
                arrows.contains(&to.as_str()),
                "{from} must not depend on {to}"
            );
        }
    }
}

#[test]
fn the_allowed_arrows_have_no_circle() {
    let mut ranked: Vec<&str> = Vec::new();
    while ranked.len() < ARROWS.len() {
        let next = ARROWS.iter().find(|(name, uses)| {
            !ranked.contains(name) && uses.iter().all(|used| ranked.contains(used))
        });
        ranked.push(next.expect("what is left is a circle").0);
    }
}

#[test]
fn unsafe_code_is_forbidden_outside_of_its_crates() {
    for name in workspace()
        .keys()
        .filter(|name| UNSAFE.iter().all(|(unsafe_crate, _)| unsafe_crate != name))
    {
        let sources = root().join("crates").join(name).join("src");
        let roots = ["lib.rs", "main.rs"].map(|file| sources.join(file));
        for file in roots.iter().filter(|file| file.exists()) {
            let text = std::fs::read_to_string(file).expect("readable");
            assert!(
                text.contains("#![forbid(unsafe_code)]"),
                "{} lacks it",
                file.display()
            );
        }
    }
}

#[test]
fn unsafe_code_stays_in_the_files_that_may_have_it() {
    for (name, files) in UNSAFE.iter().filter(|(_, files)| !files.is_empty()) {
        let sources = root().join("crates").join(name).join("src");
        for entry in std::fs::read_dir(sources).expect("sources") {
            let path = entry.expect("an entry").path();
            let file = path.file_name().and_then(|name| name.to_str());
            let text = std::fs::read_to_string(&path).expect("a file, no directory");
            let allowed = files.contains(&file.expect("a name"));
            let used = text.contains("unsafe {") || text.contains("allow(unsafe_code)");
            assert!(allowed || !used, "{} has unsafe code", path.display());
        }
    }
}

#[test]
fn a_crate_names_the_version_that_the_others_have() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml");
    let manifest = std::fs::read_to_string(manifest).expect("a manifest");
    let mut ours = manifest
        .lines()
        .filter(|line| line.contains("path = \"crates/"));
    let version = concat!("version = \"", env!("CARGO_PKG_VERSION"), "\"");
    assert!(ours.clone().count() > 0, "of [workspace.dependencies]");
    assert_eq!(ours.find(|line| !line.contains(version)), None, "{version}");
}
