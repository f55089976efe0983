//! No two files of a crate use each other, directly or through others. `mod` declarations do not
//! count as uses. A path to an item in another file of the crate does count. If the path leads
//! through re-exports, it counts as a use of the file that defines the item. Comments, and tests
//! inside the sources, may name anything.

use std::collections::BTreeMap;
use std::path::Path;

type Name = Vec<String>;

/// A source file.
#[derive(Default)]
struct Module {
    /// Names that `use` imports, and their paths.
    imports: BTreeMap<String, Name>,
    /// Paths that occur in the file.
    paths: Vec<Name>,
}

/// Files by their module paths.
type Crate = BTreeMap<Name, Module>;

fn read(folder: &Path, name: &Name, krate: &mut Crate) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let stem = path.file_stem().expect("a name").to_string_lossy();
        let below = [&name[..], &[stem.to_string()]].concat();
        let source = || std::fs::read_to_string(&path).expect("a source");
        match &*stem {
            _ if path.is_dir() => read(&path, &below, krate),
            "tests" | "models" => {}
            "mod" | "lib" | "main" => drop(krate.insert(name.clone(), module(&source()))),
            _ => drop(krate.insert(below, module(&source()))),
        }
    }
}

/// Parses a source formatted by rustfmt.
fn module(source: &str) -> Module {
    let (mut module, mut code) = (Module::default(), String::new());
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        let bare = line.trim_start();
        let indent = line.len() - bare.len();
        // `pub(in path)` is not a use.
        let restricted = bare
            .strip_prefix("pub(")
            .and_then(|rest| rest.split_once(") "));
        let public = restricted
            .map(|(_, item)| item)
            .or(bare.strip_prefix("pub "));
        let item = public.unwrap_or(bare);
        if bare.starts_with("#[cfg(test)]") || bare.starts_with("#[cfg(all(test") {
            let end = format!("{:indent$}}}", "");
            let next = lines
                .by_ref()
                .find(|line| !line.trim_start().starts_with("#["));
            if next.is_some_and(|next| !next.ends_with([';', '}'])) {
                lines.by_ref().find(|line| *line == end);
            }
        } else if let Some(tree) = item.strip_prefix("use ") {
            let mut tree = tree.to_owned();
            while !tree.ends_with(';') {
                tree += lines.next().expect("the end of a use").trim();
            }
            let mut found = Vec::new();
            expand(tree.trim_end_matches(';'), &[], &mut found);
            // A re-export does not count as a use; it only adds a name.
            let used = found.iter().filter(|_| public.is_none());
            let used = used.map(|(_, path)| path.clone());
            module.paths.extend(used);
            module.imports.extend(found);
        } else if !bare.starts_with("//") {
            code = code + item + "\n";
        }
    }
    let words = code.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | ':'));
    let paths = words.filter(|word| word.contains("::"));
    module
        .paths
        .extend(paths.map(|path| path.split("::").map(str::to_owned).collect::<Name>()));
    module
}

/// The names that a `use` tree imports, and their paths.
fn expand(tree: &str, before: &[String], found: &mut Vec<(String, Name)>) {
    let group = tree
        .split_once('{')
        .map(|(path, rest)| (path, &rest[..rest.len() - 1]));
    let (path, inner) = group.unwrap_or((tree, ""));
    let (path, name) = path.split_once(" as ").unwrap_or((path, ""));
    let pieces = path
        .split("::")
        .filter(|piece| !piece.is_empty() && *piece != "self");
    let pieces: Name = before
        .iter()
        .cloned()
        .chain(pieces.map(str::to_owned))
        .collect();
    if group.is_none() {
        let last = pieces.last().cloned().unwrap_or_default();
        return found.push((
            if name.is_empty() {
                last
            } else {
                name.to_owned()
            },
            pieces,
        ));
    }
    let mut depth = 0;
    let parts = inner.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let parts = parts.map(str::trim).filter(|part| !part.is_empty());
    parts.for_each(|part| expand(part, &pieces, found));
}

/// The file that a path in the file `from` leads to. `hops` is the maximum number of re-exports.
fn follow(krate: &Crate, from: &Name, path: &[String], hops: usize) -> Option<Name> {
    let (first, mut rest) = path.split_first()?;
    let mut at = match first.as_str() {
        "crate" => Name::new(),
        "self" => from.clone(),
        "super" => from.split_last()?.1.to_vec(),
        name => {
            let child = [&from[..], &[name.to_owned()]].concat();
            if !krate.contains_key(&child) {
                let import = krate[from]
                    .imports
                    .get(name)
                    .filter(|path| path[0] != name)?;
                let hops = hops.checked_sub(1)?;
                return follow(krate, from, &[&import[..], rest].concat(), hops);
            }
            child
        }
    };
    while let Some((next, after)) = rest.split_first() {
        let below = match next.as_str() {
            "super" => at.split_last()?.1.to_vec(),
            _ => [&at[..], std::slice::from_ref(next)].concat(),
        };
        if !krate.contains_key(&below) {
            let is_exported = at != *from && krate.get(&at)?.imports.contains_key(next);
            return if is_exported {
                follow(krate, &at, rest, hops)
            } else {
                Some(at)
            };
        }
        (at, rest) = (below, after);
    }
    Some(at)
}

/// Files that are in a cycle, or on a path between two cycles, each with the files it uses.
fn circles(folder: &Path) -> BTreeMap<Name, Vec<Name>> {
    let mut krate = Crate::new();
    read(folder, &Name::new(), &mut krate);
    let uses = |(name, module): (&Name, &Module)| {
        let uses = module
            .paths
            .iter()
            .filter_map(|path| follow(&krate, name, path, 8));
        (name.clone(), uses.filter(|used| used != name).collect())
    };
    let mut graph: BTreeMap<Name, Vec<Name>> = krate.iter().map(uses).collect();
    loop {
        let known = graph.clone();
        let is_used = |name: &Name| known.values().any(|uses| uses.contains(name));
        graph
            .values_mut()
            .for_each(|uses| uses.retain(|used| known.contains_key(used)));
        graph.retain(|name, uses| is_used(name) && !uses.is_empty());
        if graph == known {
            return graph;
        }
    }
}

#[test]
fn no_file_of_a_crate_uses_one_that_uses_it() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut seen = 0;
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(crates).expect("crates/") {
        let folder = entry.expect("an entry").path().join("src");
        if folder.is_dir() {
            all.insert(folder.clone(), circles(&folder));
            seen += 1;
        }
    }
    all.retain(|_, found| !found.is_empty());
    assert!(all.is_empty(), "{all:#?}");
    assert!(seen >= 12, "{seen} crates");
}

/// Number of files of a crate that are in cycles.
fn of_sources(sources: &[(&str, &str)]) -> usize {
    let folder = tempfile::tempdir().expect("a directory");
    for (name, text) in sources {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("room");
    }
    circles(folder.path()).len()
}

#[test]
fn circles_are_found_through_re_exports_macros_and_parents() {
    let b = "pub struct B;\nfn f() { println!(\"{}\", super::a::g()); }";
    let direct = [
        ("lib.rs", ""),
        ("a.rs", "use crate::b::B;\npub struct A(B);"),
        ("b.rs", b),
    ];
    assert_eq!(of_sources(&direct), 2);
    let exported = [
        ("lib.rs", "pub use b::B;"),
        (
            "a.rs",
            "use crate::{\n    B as Other,\n};\npub struct A(Other);",
        ),
        ("b.rs", "pub struct B;\nfn f() -> crate::a::A { todo!() }"),
    ];
    assert_eq!(of_sources(&exported), 2);
    let parent = [
        ("lib.rs", ""),
        ("a/mod.rs", "mod b;\npub struct A;\nfn f() { b::g() }"),
        ("a/b.rs", "use super::A;\npub fn g() { let _: A; }"),
    ];
    assert_eq!(of_sources(&parent), 2);
}

#[test]
fn declarations_tests_and_chains_are_no_circles() {
    let chain = [
        ("lib.rs", ""),
        ("a.rs", "use crate::b::B;"),
        (
            "b.rs",
            "use crate::c::C;\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n",
        ),
        ("c.rs", "/// See [`crate::a`].\npub struct C;"),
    ];
    assert_eq!(of_sources(&chain), 0);
    let child = [
        ("lib.rs", "mod a;\npub struct Shared;"),
        ("a.rs", "use crate::Shared;"),
    ];
    assert_eq!(of_sources(&child), 0);
}
