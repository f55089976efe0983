//! Tests start other programs. A bare Debian lacks some of them; there, the tests that need these
//! programs are skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The programs of a bare Debian with Rust and with the packages that `make setup` installs; `None`
/// if dpkg does not know these packages.
fn bare_programs() -> Option<BTreeSet<String>> {
    let folder = tempfile::tempdir().expect("a directory");
    let place = folder.path().join("bin");
    let made = Command::new(root().join("scripts/bare-path"))
        .arg(&place)
        .output()
        .expect("it starts");
    let errors = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{errors}");
    let entries = fs::read_dir(&place).ok()?;
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let programs = names.map(|name| name.to_string_lossy().into_owned());
    Some(programs.collect())
}

/// Sources below a folder that contain tests.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Names of programs that a text starts.
fn started(text: &str) -> impl Iterator<Item = &str> {
    let calls = text.split("Command::new(\"").skip(1);
    let names = calls.filter_map(|rest| rest.split('"').next());
    names.filter(|name| !name.contains('/'))
}

#[test]
fn a_test_that_starts_a_program_which_a_bare_machine_lacks_can_skip() {
    let Some(bare) = bare_programs() else {
        return println!("skipped: dpkg does not know the programs of this system");
    };
    for program in ["sh", "cc", "awk", "mkfs.erofs", "python3", "cargo"] {
        assert!(bare.contains(program), "{program}");
    }
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let mut optional: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in &files {
        let text = fs::read_to_string(file).expect("text");
        let is_test = file.components().any(|part| part.as_os_str() == "tests");
        let tests = match is_test {
            true => Some(&text[..]),
            false => text.find("#[cfg(test)]\nmod tests {").map(|at| &text[at..]),
        };
        let Some(tests) = tests.filter(|tests| !tests.contains("skipped: ")) else {
            continue;
        };
        for name in started(tests).filter(|name| !bare.contains(*name)) {
            let file = file.strip_prefix(root()).expect("below").display();
            let programs = optional.entry(name.to_owned()).or_default();
            programs.insert(file.to_string());
        }
    }
    assert!(optional.is_empty(), "no reason to skip in {optional:?}");
}

#[test]
fn programs_that_only_some_machines_have_are_not_among_those_of_a_bare_one() {
    let Some(bare) = bare_programs() else {
        return println!("skipped: dpkg does not know the programs of this system");
    };
    for program in [
        "zsh",
        "fish",
        "valgrind",
        "groff",
        "chromium",
        "veritysetup",
    ] {
        assert!(!bare.contains(program), "{program}");
    }
}
