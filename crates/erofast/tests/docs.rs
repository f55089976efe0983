//! Checks the pages in docs/: their commands run, their tables match the code, and the options that
//! they name exist.
//!
//! A block that begins with "```sh run" is run by bash; all blocks of a page share a temporary
//! directory with a small image `app.erofs`. A further word says what the block needs: "fuse" means
//! that it mounts, "userns" that it mounts in a user namespace, and "trace" that it records the
//! scheduler. If that is not allowed, the block is skipped and the reason is printed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The image that pages call `app.erofs`.
const IMAGE: &str = "tests/fixtures/lz4-full-index-64k.erofs";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// All pages, by name.
fn pages() -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(docs()).expect("docs/");
    let pages: BTreeMap<_, _> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "md"))
        .map(|path| {
            let name = path
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned();
            (name, std::fs::read_to_string(&path).expect("readable"))
        })
        .collect();
    assert!(pages.len() >= 5, "{:?}", pages.keys());
    pages
}

/// A fenced block: the text after the opening backquotes, its lines, and its location.
struct Block {
    kind: String,
    text: String,
    line: usize,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (number, line) in page.lines().enumerate() {
        match line.strip_prefix("```") {
            Some(_) if open => open = false,
            Some(kind) => {
                open = true;
                blocks.push(Block {
                    kind: kind.to_owned(),
                    text: String::new(),
                    line: number + 1,
                });
            }
            None if open => {
                let block = blocks.last_mut().expect("an open block");
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {}
        }
    }
    blocks
}

/// Why blocks of this kind cannot run on this machine.
fn obstacle(kind: &str) -> Option<&'static str> {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| {
        use std::os::unix::fs::MetadataExt;
        own.uid() == 0
    });
    let fuse = || {
        std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")
            .is_ok()
    };
    let lab = Path::new(env!("CARGO_BIN_EXE_erofast")).with_file_name("erofast-lab");
    let tracing = || Path::new("/sys/kernel/tracing").exists();
    match kind {
        "sh run" => None,
        "sh run fuse" if !fuse() => Some("/dev/fuse cannot be opened"),
        "sh run fuse" if !root && !Path::new("/usr/bin/fusermount3").exists() => {
            Some("no fusermount3")
        }
        "sh run fuse" => None,
        "sh run userns" if !fuse() => Some("/dev/fuse cannot be opened"),
        "sh run userns" if !user_namespaces() => Some("no user namespaces here"),
        "sh run userns" => None,
        "sh run trace" if !root || !tracing() => Some("recording needs root and tracefs"),
        "sh run trace" if !lab.exists() => Some("no erofast-lab beside erofast"),
        "sh run trace" => None,
        other => panic!("```{other}: there are run, run fuse, run userns and run trace"),
    }
}

fn user_namespaces() -> bool {
    let output = Command::new("unshare").args(["-Urm", "true"]).output();
    output.is_ok_and(|output| output.status.success())
}

/// A directory with the image, and a PATH with the command first.
fn place() -> (tempfile::TempDir, std::ffi::OsString) {
    let place = tempfile::tempdir().expect("a directory");
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join(IMAGE);
    std::fs::copy(image, place.path().join("app.erofs")).expect("a copy of the image");
    let command = Path::new(env!("CARGO_BIN_EXE_erofast"));
    let mut path = std::ffi::OsString::from(command.parent().expect("a directory"));
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    (place, path)
}

#[test]
fn every_command_marked_as_runnable_runs() {
    let mut ran = 0;
    for (name, page) in pages() {
        let (place, path) = place();
        for block in blocks(&page)
            .iter()
            .filter(|block| block.kind.starts_with("sh run"))
        {
            if let Some(why) = obstacle(&block.kind) {
                println!("skipped: {name}:{}: {why}", block.line);
                continue;
            }
            let output = Command::new("bash")
                .args(["-euo", "pipefail", "-c", &block.text])
                .current_dir(place.path())
                .env("PATH", &path)
                .output()
                .expect("bash starts");
            let _ = Command::new("umount")
                .arg("-lq")
                .arg(place.path().join("app"))
                .output();
            let stderr = String::from_utf8_lossy(&output.stderr);
            // If the kernel drops switches, the figures are not valid and the status is 1.
            if !output.status.success() && stderr.contains("the kernel did not ") {
                println!("skipped: {name}: this kernel does not write all switches");
                continue;
            }
            assert!(
                output.status.success(),
                "{name}:{}: {}\n{stderr}",
                block.line,
                block.text
            );
            ran += 1;
        }
    }
    println!("{ran} blocks ran");
    assert!(ran > 0);
}

#[test]
fn mount_md_has_the_options_of_the_code() {
    let page = &pages()["mount.md"];
    let rows: Vec<&str> = page
        .split_once("## All mount options")
        .expect("the section")
        .1
        .lines()
        .take_while(|line| !line.starts_with("## "))
        .filter(|line| line.starts_with("| `"))
        .collect();
    let known: Vec<String> = erofs_mount::KNOWN
        .iter()
        .map(|option| {
            format!(
                "| `{}` | {} |",
                option.usage.replace('|', "\\|"),
                option.meaning
            )
        })
        .collect();
    for row in &known {
        let is_there = rows.contains(&row.as_str());
        assert!(is_there, "docs/mount.md lacks the row of the code: {row}");
    }
    for row in &rows {
        let is_known = known.iter().any(|known| known == row);
        assert!(
            is_known,
            "docs/mount.md has a row that the code lacks: {row}"
        );
    }
    assert!(rows == known, "docs/mount.md has the rows in another order");
}

/// Checks `erofast a b --flag` in all shell blocks: do the subcommands have those flags?
#[test]
fn every_flag_of_the_pages_exists() {
    let mut looked_at = 0;
    for (name, page) in pages() {
        let commands = blocks(&page)
            .into_iter()
            .filter(|block| block.kind.starts_with("sh"))
            .flat_map(|block| {
                let joined = block.text.replace("\\\n", " ");
                joined
                    .split(['\n', ';', '|', '&', '\''])
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            });
        for command in commands {
            let own = command.split(" -- ").next().unwrap_or_default();
            let own = own.split(" # ").next().unwrap_or_default();
            let words: Vec<&str> = own.split_whitespace().collect();
            let ["erofast", rest @ ..] = words.as_slice() else {
                continue;
            };
            let nested = matches!(rest.first(), Some(&("cache" | "lab" | "trace")));
            let subcommand = &rest[..rest.len().min(1 + usize::from(nested))];
            let help = Command::new(env!("CARGO_BIN_EXE_erofast"))
                .args(subcommand)
                .arg("--help")
                .output()
                .expect("erofast starts");
            let help = String::from_utf8_lossy(&help.stdout).into_owned();
            assert!(help.contains("Usage:"), "{name}: {command}");
            for flag in rest.iter().filter(|word| word.starts_with("--")) {
                assert!(help.contains(flag), "{name}: {command}: no {flag}");
                looked_at += 1;
            }
        }
    }
    println!("{looked_at} flags");
    assert!(looked_at > 10);
}

#[test]
fn the_systemd_unit_is_one() {
    let page = &pages()["mount.md"];
    let unit = blocks(page)
        .into_iter()
        .find(|block| block.kind == "ini")
        .expect("the unit");
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("srv-app.mount");
    std::fs::write(&file, unit.text).expect("room");
    let Ok(output) = Command::new("systemd-analyze")
        .arg("verify")
        .arg(&file)
        .output()
    else {
        println!("skipped: no systemd-analyze");
        return;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && stderr.is_empty(), "{stderr}");
}

#[test]
fn links_between_the_pages_lead_somewhere() {
    for (name, page) in pages() {
        for link in page
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            if file.starts_with("http") {
                continue;
            }
            let path = if file.is_empty() {
                docs().join(&name)
            } else {
                docs().join(file)
            };
            let target = std::fs::read_to_string(&path);
            let target = target.unwrap_or_else(|error| panic!("{name}: {link}: {error}"));
            let known = |line: &str| anchor(line) == heading;
            let found =
                heading.is_empty() || target.lines().filter(|l| l.starts_with('#')).any(known);
            assert!(found, "{name}: {link}: no such heading");
        }
    }
}

#[test]
fn links_of_the_contributors_pages_lead_somewhere() {
    let root = docs().join("..");
    let mut pages = vec![root.join("CONTRIBUTING.md"), root.join("SECURITY.md")];
    for folder in ["contributing", "notebook"] {
        let entries = std::fs::read_dir(docs().join(folder)).expect(folder);
        pages.extend(entries.map(|entry| entry.expect("an entry").path()));
    }
    assert!(pages.len() >= 6, "{pages:?}");
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("readable");
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap_or_default();
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = page.parent().expect("a folder").join(file);
            let target = std::fs::read_to_string(&target)
                .unwrap_or_else(|error| panic!("{}: {link}: {error}", page.display()));
            let known = |line: &str| anchor(line) == heading;
            let found =
                heading.is_empty() || target.lines().filter(|l| l.starts_with('#')).any(known);
            assert!(found, "{}: {link}: no such heading", page.display());
        }
    }
}

#[test]
fn the_five_ways_through_the_code_name_no_file_twice_and_none_that_is_gone() {
    let page = &pages()["architecture.md"];
    let (_, ways) = page.split_once("## Five ways").expect("the section");
    let (ways, _) = ways.split_once("\n## ").expect("a section behind it");
    let ways: Vec<&str> = ways.split("\n### ").skip(1).collect();
    assert_eq!(ways.len(), 5);
    for way in ways {
        let marked = way.split('`').skip(1).step_by(2);
        let files: Vec<&str> = marked.filter(|word| word.ends_with(".rs")).collect();
        assert!(files.len() >= 8, "{way}");
        for file in &files {
            let (name, path) = file.split_once('/').expect("CRATE/FILE");
            let path = docs().join(format!("../crates/{name}/src/{path}"));
            assert!(path.is_file(), "{file} is gone");
            let times = files.iter().filter(|other| *other == file).count();
            assert_eq!(times, 1, "{file} is named {times} times: {way}");
        }
    }
}

/// The anchor by which a link refers to a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}
