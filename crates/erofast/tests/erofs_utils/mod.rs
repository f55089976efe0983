//! fsck.erofs and dump.erofs: runs the command lines of `lines.txt` and compares exit status,
//! standard output, the messages that scripts read and the extracted tree with erofs-utils 1.9.4.
//! `answers.txt` has the answers of 1.9.4; this command writes it:
//!
//! ```sh
//! EROFS_UTILS=/usr/bin EROFAST_WRITE=1 cargo test -p erofast --test integration -- erofs_utils::
//! ```
//!
//! `EROFS_UTILS` is the directory with the programs of erofs-utils.

use std::fmt::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

use crate::common::{fixtures, good_images, image_sets, manifest::hex};

const LINES: &str = include_str!("lines.txt");
/// The version whose answers are known.
const VERSION: &str = "1.9.4";
/// Longer output is compared by its checksum.
const SHORT: usize = 6000;

/// A directory with the images and a program under both names. `inode-digest.erofs` was made from
/// two files by `mkfs.erofs -T1700000000 --all-root --xattr-inode-digest=user.sha256`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a directory");
        for entry in std::fs::read_dir(fixtures()).expect("images") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().expect("a name");
            symlink(&path, place.path().join(name)).expect("a link");
        }
        std::fs::write(place.path().join("lines.txt"), LINES).expect("a file that is no image");
        let spoilt = |image: &str, spoil: &dyn Fn(&mut [u8])| {
            let mut bytes = std::fs::read(fixtures().join(image)).expect("an image");
            spoil(&mut bytes);
            std::fs::write(place.path().join(format!("spoilt-{image}")), bytes).expect("room");
        };
        // Breaks the checksum of the superblock.
        spoilt("lz4-4k.erofs", &|bytes| bytes[1024 + 4] ^= 1);
        // Breaks the content of a file.
        spoilt("inode-digest.erofs", &|bytes| {
            let content = b"hello digest";
            let at = bytes
                .windows(content.len())
                .position(|bytes| bytes == content);
            bytes[at.expect("the content")] ^= 1;
        });
        Self(place)
    }

    /// Runs a command line, whose first word names a program in `directory`.
    fn answer(&self, directory: &Path, line: &str) -> String {
        let mut words = line.split(' ');
        let name = words.next().expect("a name");
        let output = Command::new("sh")
            .args([
                "-c",
                "umask 027; program=$1; shift; exec \"$program\" \"$@\"",
                "sh",
            ])
            .arg(directory.join(name))
            .args(words)
            .current_dir(self.0.path())
            .env("TZ", "CET-1")
            .arg0("sh")
            .output()
            .expect("it starts");
        let mut answer = format!("$ {line}\n{:?}\n", output.status.code());
        for message in String::from_utf8_lossy(&output.stderr).lines() {
            if READ.iter().any(|read| message.contains(read)) {
                writeln!(answer, "{message}").expect("a string");
            }
        }
        match String::from_utf8(output.stdout) {
            Ok(text) if text.len() < SHORT => answer.push_str(&text),
            Ok(text) => answer.push_str(&sum(text.as_bytes())),
            Err(error) => answer.push_str(&sum(error.as_bytes())),
        }
        let extracted = self.0.path().join("X");
        if extracted.symlink_metadata().is_ok() {
            let mut tree = String::new();
            list(&extracted, "X", &mut tree);
            println!("{line}:\n{tree}");
            answer.push_str(&sum(tree.as_bytes()));
            let removed = Command::new("rm").arg("-rf").arg(&extracted).status();
            assert!(removed.expect("it starts").success());
        }
        answer
    }
}

/// Messages that scripts read; the wording of other messages differs.
const READ: [&str; 4] = [
    "No errors found",
    "Extracted filesystem successfully",
    "Compression ratio",
    "Failed to extract filesystem",
];

fn sum(bytes: &[u8]) -> String {
    format!(
        "{} bytes, sha256 {}\n",
        bytes.len(),
        hex(&Sha256::digest(bytes))
    )
}

/// Everything that extraction sets, one line per entry.
fn list(path: &Path, name: &str, tree: &mut String) {
    let metadata = path.symlink_metadata().expect("an entry");
    let (mode, links) = (metadata.mode(), metadata.nlink());
    let links = if metadata.is_dir() { 0 } else { links };
    let owner = format!("{}:{}", metadata.uid(), metadata.gid());
    let time = format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec());
    let content = if metadata.is_file() {
        sum(&std::fs::read(path).expect("readable"))
    } else if metadata.is_symlink() {
        format!(
            "{}\n",
            std::fs::read_link(path).expect("a target").display()
        )
    } else {
        format!("{:x}\n", metadata.rdev())
    };
    let mut names = vec![0; 1 << 16];
    let length = rustix::fs::llistxattr(path, &mut names[..]).expect("xattrs");
    let xattrs = String::from_utf8_lossy(&names[..length]).replace('\0', " ");
    write!(
        tree,
        "{name} {mode:o} {links} {owner} {time} {xattrs}{content}"
    )
    .expect("a string");
    if metadata.is_dir() {
        let mut entries: Vec<_> = std::fs::read_dir(path)
            .expect("readable")
            .map(|entry| entry.expect("an entry").path())
            .collect();
        entries.sort();
        for path in entries {
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            list(&path, &name, tree);
        }
    }
}

/// A directory with this program under both names.
fn ours() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["fsck.erofs", "dump.erofs"] {
        symlink(env!("CARGO_BIN_EXE_erofast"), directory.path().join(name)).expect("a link");
    }
    directory
}

#[test]
fn failures_of_an_extraction_have_the_form_of_erofs_utils() {
    let (programs, place) = (ours(), Place::new());
    let extract = || {
        let image = fixtures().join("lz4-4k.erofs");
        let mut fsck = Command::new(programs.path().join("fsck.erofs"));
        let fsck = fsck.arg("--extract=Y").arg(image);
        let output = fsck.current_dir(place.0.path()).output();
        let output = output.expect("it starts");
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), messages)
    };
    let (is_good, messages) = extract();
    assert!(is_good, "{messages}");
    let (is_good, messages) = extract();
    assert!(!is_good && messages.contains("File exists"), "{messages}");
    let mut lines = messages.lines();
    assert!(
        lines.all(|line| line.starts_with("<E> erofs: ")),
        "{messages}"
    );
}

/// The directory with erofs-utils' programs. Without erofs-utils [`VERSION`], prints the reason and
/// returns `None`.
fn theirs() -> Option<PathBuf> {
    let directory = PathBuf::from(std::env::var_os("EROFS_UTILS").unwrap_or("/usr/bin".into()));
    let version = Command::new(directory.join("dump.erofs"))
        .arg("-V")
        .output();
    let known = version.is_ok_and(|output| {
        String::from_utf8_lossy(&output.stdout).contains(&format!("(erofs-utils) {VERSION}"))
    });
    if !known {
        let place = directory.display();
        println!("skipped: no dump.erofs of erofs-utils {VERSION} in {place}: set EROFS_UTILS");
    }
    known.then_some(directory)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn answers(directory: &Path) -> Vec<String> {
    let place = Place::new();
    LINES
        .lines()
        .map(|line| place.answer(directory, line))
        .collect()
}

fn known_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/erofs_utils/answers.txt")
}

/// The known answers, line by line.
fn known() -> Vec<String> {
    let text = std::fs::read_to_string(known_file()).expect("readable");
    let answers = text.split("$ ").skip(1);
    answers.map(|answer| format!("$ {answer}")).collect()
}

fn compare(found: &[String], expected: &[String]) {
    assert!(
        expected.len() >= 40 && found.len() == expected.len(),
        "{}",
        expected.len()
    );
    let pairs = found
        .iter()
        .zip(expected)
        .filter(|(found, expected)| found != expected);
    let wrong: Vec<String> = pairs
        .map(|(found, expected)| format!("expected {expected}but it was {found}"))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn command_lines_of_erofs_utils_are_answered_as_erofs_utils_does() {
    if !is_root() {
        println!("skipped: not root, which extraction needs to keep owners");
        return;
    }
    compare(&answers(ours().path()), &known());
}

#[test]
fn erofs_utils_still_answers_as_it_did() {
    let Some(directory) = theirs().filter(|_| is_root()) else {
        return;
    };
    let answers = answers(&directory);
    if std::env::var_os("EROFAST_WRITE").is_some() {
        std::fs::write(known_file(), answers.concat()).expect("written");
    } else {
        compare(&answers, &known());
    }
}

/// Images that 1.9.4 cannot read because their blocks are larger than a page, and two in which it
/// counts fragments of encoded extents with wrong lengths.
const OTHERS: [&str; 5] = [
    "lz4-b16384",
    "plain-b65536",
    "plain-b8192",
    "zstd-48bit-4g-frag",
    "zstd-48bit-fragments",
];

#[test]
fn every_image_has_the_same_figures_in_both() {
    let Some(theirs) = theirs() else { return };
    let ours = ours();
    let place = Place::new();
    for image in image_sets()
        .last()
        .into_iter()
        .flat_map(|set| good_images(set))
    {
        if OTHERS.contains(&image.name.as_str()) {
            continue;
        }
        let devices = image
            .devices
            .iter()
            .map(|path| format!("--device={} ", path.display()));
        let image = format!(
            "{}--offset={} {}",
            devices.collect::<String>(),
            image.offset,
            image.path.display()
        );
        for options in ["dump.erofs -sSe --ls --path=/", "fsck.erofs -d3 -p"] {
            let line = format!("{options} {image}");
            assert_eq!(
                place.answer(ours.path(), &line),
                place.answer(&theirs, &line)
            );
        }
    }
}
