//! Each dependency has the same features no matter which crates are tested, so that `cargo test -p
//! A` and `cargo test -p B` share compiled code. Differences belong in
//! `crates/workspace-hack/Cargo.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// The dependencies of a crate and of its tests: name with version, and features.
fn dependencies(package: &str) -> Vec<(String, String)> {
    let tree = ["tree", "--locked", "--offline", "--package", package];
    let format = [
        "--edges=normal,build,dev",
        "--prefix=none",
        "--format={p}\t{f}",
    ];
    let output = Command::new(env!("CARGO"))
        .args(tree)
        .args(format)
        .arg("--no-dedupe")
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo tree runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    text.lines()
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, features)| {
            (
                name.to_owned(),
                features.trim_end_matches(" (*)").to_owned(),
            )
        })
        .collect()
}

#[test]
fn no_dependency_is_compiled_twice_for_the_tests_of_two_crates() {
    let crates = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let mut features: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for entry in crates.expect("crates").map(|entry| entry.expect("a crate")) {
        let package = entry.file_name().into_string().expect("a name");
        for (dependency, set) in dependencies(&package) {
            let users = features.entry(dependency).or_default().entry(set);
            users.or_default().insert(package.clone());
        }
    }
    assert!(features.len() > 100, "{} dependencies", features.len());
    features.retain(|_, sets| sets.len() > 1);
    assert!(features.is_empty(), "different features: {features:#?}");
}
