//! Everything that programs see of a tree: names, types, attributes, content.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The properties of files, in lines that can be compared.
pub type Shown = BTreeMap<PathBuf, Vec<String>>;

/// Everything below `root`, by path relative to it.
pub fn tree(root: &Path) -> Shown {
    let mut shown = Shown::new();
    let mut links = BTreeMap::new();
    add(root, Path::new(""), &mut shown, &mut links);
    shown
}

fn add(root: &Path, path: &Path, shown: &mut Shown, links: &mut BTreeMap<(u64, u64), PathBuf>) {
    let here = root.join(path);
    let mut lines = metadata(&here);
    let found = fs::symlink_metadata(&here).expect("it is there");
    if !found.is_dir() && found.nlink() > 1 {
        // overlayfs uses inode numbers from each layer.
        let number = (found.dev(), found.ino());
        let first = links.entry(number).or_insert_with(|| path.to_owned());
        lines.push(format!("the same as {}", first.display()));
    }
    shown.insert(path.to_owned(), lines);
    if !found.is_dir() {
        return;
    }
    let mut entries: Vec<_> = fs::read_dir(&here)
        .expect("a directory")
        .collect::<io::Result<_>>()
        .expect("entries");
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let below = path.join(entry.file_name());
        let found = match fs::symlink_metadata(root.join(&below)) {
            // overlayfs lists whiteouts in directories that exist in only one layer.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found.expect("it is there"),
        };
        let listed = entry.file_type().expect("a type");
        assert!(
            listed == found.file_type(),
            "{}: listed as {listed:?}",
            below.display()
        );
        add(root, &below, shown, links);
    }
}

fn metadata(path: &Path) -> Vec<String> {
    let found = fs::symlink_metadata(path).expect("it is there");
    // The kernel reports no blocks for a file in fragments, so tar takes such a file for a hole.
    let blocks = found.blocks().max(u64::from(found.size() > 0));
    let mut lines = vec![format!(
        "mode {:o} owner {}:{} links {} size {} blocks {blocks} device {} changed {}.{:09}",
        found.mode(),
        found.uid(),
        found.gid(),
        found.nlink(),
        found.size(),
        found.rdev(),
        found.mtime(),
        found.mtime_nsec(),
    )];
    if found.is_symlink() {
        let target = fs::read_link(path).expect("a target");
        lines.push(format!("leads to {}", target.display()));
    }
    if found.is_file() {
        let content = fs::read(path).expect("its content");
        assert_eq!(content.len() as u64, found.size(), "{}", path.display());
        lines.push(format!("content {:x}", hash(&content)));
    }
    let is_node = found.file_type().is_fifo() || found.file_type().is_char_device();
    if !found.is_symlink() && !is_node {
        lines.extend(attributes(path));
    }
    lines
}

fn attributes(path: &Path) -> Vec<String> {
    let mut names = vec![0; 64 << 10];
    let length = rustix::fs::llistxattr(path, &mut names[..]).expect("names");
    let mut lines = Vec::new();
    for name in names[..length].split(|byte| *byte == 0) {
        if name.is_empty() {
            continue;
        }
        let mut value = vec![0; 64 << 10];
        let length = rustix::fs::lgetxattr(path, std::ffi::OsStr::from_bytes(name), &mut value[..]);
        let value = &value[..length.expect("a value")];
        lines.push(format!(
            "{} = {}",
            name.escape_ascii(),
            value.escape_ascii()
        ));
    }
    lines.sort();
    lines
}

/// Computes an FNV-1a hash.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The first paths that differ, one line each.
pub fn differences(ours: &Shown, theirs: &Shown) -> Vec<String> {
    let paths = ours.keys().chain(theirs.keys());
    let paths: std::collections::BTreeSet<_> = paths.collect();
    let differing = paths
        .into_iter()
        .filter(|path| ours.get(*path) != theirs.get(*path));
    let line = |path: &PathBuf| {
        let (ours, theirs) = (ours.get(path), theirs.get(path));
        format!("{}: {ours:?}, overlayfs has {theirs:?}", path.display())
    };
    differing.map(line).take(5).collect()
}
