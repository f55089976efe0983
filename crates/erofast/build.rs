//! The `--version` text of both programs: the version, and the commit they were built from.
//!
//! In a clone the commit comes from git, in a source tarball from the file `packaging/commit`;
//! elsewhere no commit is shown. Debug builds show `debug build` instead, because including the
//! commit would force a rebuild after every commit.

use std::path::Path;
use std::process::Command;

/// The parts of the workspace that make up the program.
const SOURCES: [&str; 4] = [
    ":(glob)crates/*/src/**",
    "crates/*/Cargo.toml",
    "Cargo.toml",
    "Cargo.lock",
];

fn main() {
    println!("cargo::rerun-if-changed=Cargo.toml");
    let version = variable("CARGO_PKG_VERSION");
    let origin = match variable("PROFILE") == "debug" {
        true => Some("debug build".to_owned()),
        false => commit(),
    };
    let version = match origin {
        Some(origin) => format!("{version} ({origin})"),
        None => version,
    };
    println!("cargo::rustc-env=EROFAST_VERSION={version}");
}

fn variable(name: &str) -> String {
    std::env::var(name).expect("cargo sets it")
}

fn commit() -> Option<String> {
    let root = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..");
    of_clone(&root).or_else(|| of_tarball(&root))
}

/// The commit, with a mark if there are uncommitted changes. Git runs again after each commit and
/// each change to a source.
fn of_clone(root: &Path) -> Option<String> {
    // If a tarball was unpacked inside another repository, git would name that repository's commit.
    root.join(".git").exists().then_some(())?;
    let commit = git(root, &["rev-parse", "HEAD"])?;
    watch(root)?;
    let mut status = vec!["--no-optional-locks", "status", "--porcelain", "--"];
    status.extend(SOURCES);
    let changed = !git(root, &status)?.is_empty();
    let mark = if changed { ", with local changes" } else { "" };
    Some(format!("{}{mark}", commit.get(..12)?))
}

fn watch(root: &Path) -> Option<()> {
    // Every commit appends to the log of HEAD; no other file is certain to change.
    let log = git(root, &["rev-parse", "--git-path", "logs/HEAD"])?;
    let crates = root.join("crates").read_dir().ok()?.flatten();
    let sources =
        crates.flat_map(|entry| ["src", "Cargo.toml"].map(|name| entry.path().join(name)));
    let others = [
        root.join(log),
        root.join("Cargo.toml"),
        root.join("Cargo.lock"),
    ];
    // Cargo treats a missing path as changed.
    for path in sources.chain(others).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    Some(())
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The commit that `git archive` wrote.
fn of_tarball(root: &Path) -> Option<String> {
    let file = root.join("packaging/commit");
    println!("cargo::rerun-if-changed={}", file.display());
    let commit = std::fs::read_to_string(file).ok()?;
    commit
        .starts_with(|first: char| first.is_ascii_hexdigit())
        .then_some(())?;
    Some(commit.get(..12)?.to_owned())
}
