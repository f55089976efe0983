//! docs/licences.md lists what is linked into the programs, and deny.toml allows exactly those
//! licences.
//!
//! `EROFAST_WRITE=1 cargo test --test integration licences` regenerates the table of the page.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The lines that begin and end the table.
const BEGIN: &str = "| library | licence |\n| --- | --- |\n";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Libraries that end up in the programs, by name, as cargo resolves Cargo.lock.
fn linked() -> BTreeMap<String, String> {
    libraries("normal,no-proc-macro")
}

/// Libraries that these edges of the dependency graph lead to.
fn libraries(edges: &str) -> BTreeMap<String, String> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args([
            "tree",
            "--locked",
            "--offline",
            "-p",
            "erofast",
            "-p",
            "erofast-lab",
            "-p",
            "erofast-fetch",
            "-p",
            "erofast-snapshotter",
            "--prefix",
            "none",
        ])
        .args(["-e", edges, "--format", "{p}\t{l}"])
        .current_dir(root())
        .output()
        .expect("cargo starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let listed = String::from_utf8(output.stdout).expect("text");
    let mut linked = BTreeMap::new();
    // A blank line separates the trees of two packages.
    for line in listed.lines().filter(|line| !line.is_empty()) {
        let (package, licence) = line.split_once('\t').expect("two columns");
        let own = package.contains(" (/") && !package.contains("(registry");
        let name = package.split(' ').next().expect("a name");
        if !own {
            linked.insert(name.to_owned(), licence.trim_end_matches(" (*)").to_owned());
        }
    }
    assert!(linked.len() > 30, "{linked:?}");
    linked
}

#[test]
fn the_page_lists_what_is_linked() {
    let page = root().join("docs/licences.md");
    let text = std::fs::read_to_string(&page).expect("docs/licences.md");
    let rows = linked()
        .into_iter()
        .map(|(name, licence)| format!("| {name} | {licence} |\n"));
    let table = rows.collect::<String>();
    let (before, rest) = text.split_once(BEGIN).expect("the table");
    let end = rest.find("\n\n").map_or(rest.len(), |end| end + 1);
    if std::env::var_os("EROFAST_WRITE").is_some() {
        let whole = [before, BEGIN, &table, &rest[end..]].concat();
        std::fs::write(&page, whole).expect("room");
        return;
    }
    let hint = "EROFAST_WRITE=1 cargo test -p erofast --test integration licences regenerates it";
    assert_eq!(&rest[..end], table, "{hint}");
}

/// The strings in `allow = [...]`.
fn allowed() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let section = text.split("[licenses]").nth(1).expect("[licenses]");
    let list = section.split_once("allow = [").expect("allow").1;
    let list = list.split_once(']').expect("its end").0;
    let strings = list
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"'));
    strings
        .filter_map(|rest| rest.split('"').next())
        .map(str::to_owned)
        .collect()
}

/// Whether these licences satisfy an SPDX expression. `/` is the old form of OR.
fn is_met(expression: &str, allowed: &[String]) -> bool {
    let plain = expression.replace('/', " OR ");
    let any = |part: &str| {
        part.split(" OR ")
            .any(|one| allowed.iter().any(|a| a == one.trim()))
    };
    // No expression here is more complex than (A OR B) AND C.
    plain
        .split(" AND ")
        .all(|part| any(part.trim().trim_start_matches('(').trim_end_matches(')')))
}

#[test]
fn deny_toml_allows_the_licences_that_are_linked_and_no_more() {
    let allowed = allowed();
    assert!(allowed.len() >= 3, "{allowed:?}");
    // Licences of procedural macros are checked too, as cargo-deny does.
    let linked = libraries("normal");
    for (name, licence) in &linked {
        assert!(is_met(licence, &allowed), "{name}: {licence}");
    }
    for one in &allowed {
        let others: Vec<String> = allowed
            .iter()
            .filter(|other| *other != one)
            .cloned()
            .collect();
        let needed = linked.values().any(|licence| !is_met(licence, &others));
        assert!(needed, "nothing needs {one}");
    }
}

#[test]
fn the_page_names_every_c_library() {
    let text = std::fs::read_to_string(root().join("docs/licences.md")).expect("docs/licences.md");
    for name in linked()
        .keys()
        .filter(|name| name.ends_with("-sys") || *name == "lzzzz")
    {
        if matches!(name.as_str(), "linux-raw-sys") {
            continue; // numbers and layouts of the kernel's interface, no C code
        }
        let row = text
            .lines()
            .any(|line| line.contains(&format!("(`{name}`)")));
        assert!(row, "{name} has no row among the C libraries");
    }
}
