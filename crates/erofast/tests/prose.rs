//! Documentation and sources: retired identifiers stay away, and lines fit 100 columns.

use std::path::{Path, PathBuf};

/// Identifiers that were replaced by better names. Comments and pages may use these words: banning
/// them there would make sentences worse.
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

/// Maximum number of columns in a line of a page or a comment.
const COLUMNS: usize = 100;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below `folder` whose names end with one of `endings`.
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

/// The sources, except this one.
fn sources() -> Vec<(PathBuf, String)> {
    let mut paths = files(&root().join("crates"), &[".rs"]);
    paths.extend(files(&root().join("fuzz"), &[".rs"]));
    paths.retain(|path| !path.ends_with("erofast/tests/prose.rs"));
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a source");
        (path, text)
    };
    let sources: Vec<_> = paths.into_iter().map(read).collect();
    assert!(sources.len() > 500, "{} sources", sources.len());
    sources
}

#[test]
fn retired_identifiers_do_not_come_back() {
    let mut found = String::new();
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
            if let Some(word) = words.find(|word| RETIRED.contains(word)) {
                found += &format!("{}:{}: {word}\n", path.display(), number + 1);
            }
        }
    }
    assert!(found.is_empty(), "\n{found}");
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
            // A table row is one line; an address cannot be broken.
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
    for (path, text) in sources() {
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start().trim_start_matches(['/', '!']);
            let is_comment = line.trim_start().starts_with("//");
            // A table row is one line; an address cannot be broken.
            let fixed = comment.starts_with(" |") || !comment.trim().contains(' ');
            let columns = line.chars().count();
            if is_comment && !fixed && columns > COLUMNS {
                found += &format!("{}:{}: {columns} columns\n", path.display(), number + 1);
            }
        }
    }
    assert!(found.is_empty(), "\n{found}");
}
