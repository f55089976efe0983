//! Documentation and sources: retired identifiers stay away, and lines fit 100 columns.

use std::path::{Path, PathBuf};

/// Identifiers with a better name today (docs/architecture.md has it): whole words, in this case.
/// English words are not listed: a ban makes sentences worse.
const RETIRED: &[&str] = &[
    "Door",
    "Doors",
    "Desk",
    "Desks",
    "Supply",
    "Landing",
    "Surplus",
    "Storer",
    "Shelf",
    "Keeper",
    "Hands",
    "Mounter",
    "Knob",
    "Wish",
    "Contended",
    "Contention",
    "LeftBehind",
    "Hurry",
    "Jail",
    "RequestPages",
    "ReadSink",
    "idle_worker",
    "Giver",
    "Taker",
];

/// Columns of a line in a page or of a comment.
const COLUMNS: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below `folder` whose names end like that.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !matches!(
                &*name,
                "target" | "fixtures" | "findings" | "corpus" | "artifacts" | ".git"
            ) {
                found.extend(files(&path, endings));
            }
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
    found
}

/// Pages, sources and scripts, but for the changelog, which may name what was.
fn texts() -> Vec<(PathBuf, String)> {
    let root = root();
    let mut paths = vec![root.join("README.md"), root.join("Makefile")];
    for (folder, endings) in [
        ("docs", &[".md"][..]),
        ("crates", &[".rs", ".toml", ".md"]),
        ("fuzz", &[""]),
        ("scripts", &[""]),
        (".ci", &[""]),
        ("packaging", &[""]),
        ("contrib", &[""]),
    ] {
        paths.extend(files(&root.join(folder), endings));
    }
    let own = Path::new(file!()).file_name();
    paths.retain(|path| path.file_name() != own);
    paths
        .into_iter()
        .filter_map(|path| Some((path.clone(), std::fs::read_to_string(path).ok()?)))
        .collect()
}

/// Whether `word` stands in a line with nothing of a word beside it.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[test]
fn retired_identifiers_do_not_come_back() {
    let mut found = String::new();
    for (path, text) in texts() {
        for (number, line) in text.lines().enumerate() {
            for word in RETIRED.iter().filter(|word| has_word(line, word)) {
                found += &format!("{}:{}: {word}\n", path.display(), number + 1);
            }
        }
    }
    assert!(found.is_empty(), "\n{found}");
}

#[test]
fn every_folder_is_read() {
    let texts = texts();
    let root = root();
    for part in [
        "README.md",
        "docs/tuning.md",
        "crates/sys/src/lib.rs",
        "fuzz/run",
        "fuzz/fuzz_targets/engine.rs",
        "scripts/machines/run",
        "contrib/systemd",
        "packaging/copyright",
        ".ci",
    ] {
        let read = |(path, _): &(PathBuf, String)| path.starts_with(root.join(part));
        assert!(texts.iter().any(read), "{part} is not read");
    }
}

#[test]
fn words_are_found_whole() {
    assert!(has_word("a Door, open", "Door"));
    assert!(!has_word("Doorway of a SubDoor", "Door"));
    assert!(has_word("the idle_worker.", "idle_worker"));
}

#[test]
fn lines_of_pages_fit_a_hundred_columns() {
    let mut pages = files(&root().join("docs"), &[".md"]);
    pages.extend(["README.md", "CHANGELOG.md"].map(|name| root().join(name)));
    let mut found = String::new();
    for path in pages {
        let text = std::fs::read_to_string(&path).expect("a page");
        let mut code = false;
        for (number, line) in text.lines().enumerate() {
            code ^= line.starts_with("```");
            // A table's row is one line; an address cannot be broken.
            let fixed = line.starts_with('|') || line.starts_with("    ");
            let breaks = line.trim().trim_start_matches("* ").contains(' ') && !fixed;
            let columns = line.chars().count();
            if columns > COLUMNS && breaks && !code {
                found += &format!("{}:{}: {columns} columns\n", path.display(), number + 1);
            }
        }
    }
    assert!(found.is_empty(), "\n{found}");
}

#[test]
fn comments_fit_a_hundred_columns() {
    let mut found = String::new();
    for (path, text) in texts() {
        let source = path.extension().is_some_and(|extension| extension == "rs");
        for (number, line) in text.lines().enumerate().filter(|_| source) {
            let comment = line.trim_start().trim_start_matches(['/', '!']);
            let is_comment = line.trim_start().starts_with("//");
            // A table's row is one line; an address cannot be broken.
            let fixed = comment.starts_with(" |") || !comment.trim().contains(' ');
            let columns = line.chars().count();
            if is_comment && !fixed && columns > COLUMNS {
                found += &format!("{}:{}: {columns} columns\n", path.display(), number + 1);
            }
        }
    }
    assert!(found.is_empty(), "\n{found}");
}
