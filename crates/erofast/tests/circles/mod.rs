//! No two files of a crate use each other, directly or through others. `mod` declarations are no
//! uses; a path into another file of the crate is one, followed through re-exports to the file
//! that defines it. Tests inside the sources may use what they like.

mod modules;
mod paths;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use modules::Crate;

/// File, and the files it uses, each with the first such path.
type Graph = BTreeMap<PathBuf, BTreeMap<PathBuf, String>>;

fn crates() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = std::fs::read_dir(folder).expect("crates/");
    let mut crates: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    crates.retain(|path| path.join("Cargo.toml").is_file());
    crates.sort();
    assert!(crates.len() >= 12, "{crates:?}");
    crates
}

fn graph(krate: &Crate) -> Graph {
    let mut graph = Graph::new();
    for module in krate.modules() {
        for path in &module.paths {
            let Some(file) = krate.file_of(module, path) else {
                continue;
            };
            if file != module.file {
                let uses = graph.entry(module.file.clone()).or_default();
                uses.entry(file).or_insert_with(|| path.join("::"));
            }
        }
    }
    graph
}

/// Drops, again and again, files that use nothing or are used by nothing: circles are left, and the
/// files between two of them.
fn circles(mut graph: Graph) -> Graph {
    loop {
        let before: usize = graph.values().map(BTreeMap::len).sum();
        let used: BTreeSet<PathBuf> = graph.values().flat_map(BTreeMap::keys).cloned().collect();
        graph.retain(|file, _| used.contains(file));
        let left: BTreeSet<PathBuf> = graph.keys().cloned().collect();
        for uses in graph.values_mut() {
            uses.retain(|file, _| left.contains(file));
        }
        graph.retain(|_, uses| !uses.is_empty());
        if graph.values().map(BTreeMap::len).sum::<usize>() == before {
            return graph;
        }
    }
}

fn shown(graph: &Graph) -> String {
    let name = |path: &Path| {
        path.iter()
            .rev()
            .take(3)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect::<PathBuf>()
    };
    let mut text = String::new();
    for (file, uses) in graph {
        for (used, path) in uses {
            let (file, used) = (name(file), name(used));
            text += &format!("  {} uses {}: {path}\n", file.display(), used.display());
        }
    }
    text
}

#[test]
fn no_file_of_a_crate_uses_one_that_uses_it() {
    let mut wrong = String::new();
    for folder in crates() {
        let name = folder.file_name().expect("a name").to_string_lossy();
        let left = circles(graph(&Crate::read(&folder.join("src"))));
        if !left.is_empty() {
            wrong += &format!("{name}:\n{}", shown(&left));
        }
        println!("{name}: {} files in circles\n{}", left.len(), shown(&left));
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

fn of_sources(sources: &[(&str, &str)]) -> Graph {
    let folder = tempfile::tempdir().expect("a directory");
    for (name, text) in sources {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("room");
    }
    circles(graph(&Crate::read(folder.path())))
}

#[test]
fn circles_are_found_through_re_exports_macros_and_parents() {
    let direct = of_sources(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        (
            "b.rs",
            "pub struct B; fn f() { println!(\"{}\", super::a::g()); }",
        ),
    ]);
    assert_eq!(direct.len(), 2, "{direct:?}");
    let exported = of_sources(&[
        ("lib.rs", "mod a; mod b; pub use b::B;"),
        ("a.rs", "use crate::{B as Other}; pub struct A(Other);"),
        ("b.rs", "pub struct B; fn f() -> crate::a::A { todo!() }"),
    ]);
    assert_eq!(exported.len(), 2, "{exported:?}");
    let parent = of_sources(&[
        ("lib.rs", "mod a;"),
        ("a/mod.rs", "mod b; pub struct A; fn f() { b::g() }"),
        ("a/b.rs", "use super::A; pub fn g() { let _: A; }"),
    ]);
    assert_eq!(parent.len(), 2, "{parent:?}");
}

#[test]
fn declarations_tests_and_chains_are_no_circles() {
    let chain = of_sources(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::B;"),
        (
            "b.rs",
            "use crate::c::C; #[cfg(test)] mod tests { use crate::a; }",
        ),
        ("c.rs", "/// See [`crate::a`].\npub struct C;"),
    ]);
    assert!(chain.is_empty(), "{chain:?}");
    let child = of_sources(&[
        ("lib.rs", "mod a; pub struct Shared;"),
        ("a.rs", "use crate::Shared; struct A(Shared);"),
    ]);
    assert!(child.is_empty(), "{child:?}");
}
