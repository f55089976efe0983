//! The files of a crate as a tree of modules, and where a path of one of them leads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use syn::Item;

use super::paths;

/// A name that `use` brings into a module, and the path it stands for.
pub type Imports = BTreeMap<String, Vec<String>>;

/// One file; modules inside of it count as a part of it.
#[derive(Debug)]
pub struct Module {
    pub file: PathBuf,
    /// From the crate's root.
    name: Vec<String>,
    imports: Imports,
    /// Every path that is written in it, in pieces.
    pub paths: Vec<Vec<String>>,
}

#[derive(Debug)]
pub struct Crate(BTreeMap<Vec<String>, Module>);

/// Longest chain of re-exports that is followed.
const HOPS: usize = 8;

impl Crate {
    /// Reads the crate whose sources are in `folder`.
    pub fn read(folder: &Path) -> Self {
        let root = ["lib.rs", "main.rs"].map(|name| folder.join(name));
        let root = root.into_iter().find(|path| path.is_file());
        let mut krate = Self(BTreeMap::new());
        krate.add(&root.expect("a root"), Vec::new());
        krate
    }

    pub fn modules(&self) -> impl Iterator<Item = &Module> {
        self.0.values()
    }

    /// Reads a file, and those of the modules it declares.
    fn add(&mut self, file: &Path, name: Vec<String>) {
        let folder = folder_of_children(file);
        let text = std::fs::read_to_string(file);
        let text = text.unwrap_or_else(|error| panic!("{file:?}: {error}"));
        let source = syn::parse_file(&text).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        for item in &source.items {
            if let Item::Mod(child) = item
                && child.content.is_none()
                && !paths::is_for_tests(&child.attrs)
            {
                let ident = child.ident.to_string();
                let beside = folder.join(format!("{ident}.rs"));
                let file = if let Some(path) = paths::path_of(&child.attrs) {
                    file.with_file_name(path)
                } else if beside.is_file() {
                    beside
                } else {
                    folder.join(&ident).join("mod.rs")
                };
                self.add(&file, [&name[..], &[ident]].concat());
            }
        }
        let (imports, paths) = paths::of(&source);
        let module = Module {
            file: file.to_owned(),
            name: name.clone(),
            imports,
            paths,
        };
        self.0.insert(name, module);
    }

    /// The file of the crate that a path written in `module` leads to.
    pub fn file_of(&self, module: &Module, path: &[String]) -> Option<PathBuf> {
        self.follow(module, path, HOPS)
            .map(|module| module.file.clone())
    }

    fn follow<'c>(&'c self, from: &'c Module, path: &[String], hops: usize) -> Option<&'c Module> {
        let hops = hops.checked_sub(1)?;
        let (first, rest) = path.split_first()?;
        let start = match first.as_str() {
            "crate" => self.0.get(&Vec::new())?,
            "self" => from,
            "super" => self.0.get(from.name.split_last()?.1)?,
            name => return self.named(from, name, rest, hops),
        };
        self.walk(start, rest, hops)
    }

    /// What a path leads to whose first piece is a name that `from` knows.
    fn named<'c>(
        &'c self,
        from: &'c Module,
        name: &str,
        rest: &[String],
        hops: usize,
    ) -> Option<&'c Module> {
        if let Some(child) = self.child(from, name) {
            return self.walk(child, rest, hops);
        }
        let target = from.imports.get(name)?;
        // A crate may be imported by its own name.
        if target.first().is_some_and(|first| first == name) {
            return None;
        }
        self.follow(from, &[&target[..], rest].concat(), hops)
    }

    /// Goes down from a module by the pieces of a path, through what it re-exports.
    fn walk<'c>(&'c self, at: &'c Module, rest: &[String], hops: usize) -> Option<&'c Module> {
        let Some((next, after)) = rest.split_first() else {
            return Some(at);
        };
        if next == "super" {
            return self.walk(self.0.get(at.name.split_last()?.1)?, after, hops);
        }
        if self.child(at, next).is_none() && !at.imports.contains_key(next) {
            return Some(at);
        }
        self.named(at, next, after, hops)
    }

    fn child(&self, module: &Module, name: &str) -> Option<&Module> {
        self.0.get(&[&module.name[..], &[name.to_owned()]].concat())
    }
}

/// Where the modules that a file declares have theirs.
fn folder_of_children(file: &Path) -> PathBuf {
    let stem = file.file_stem().expect("a name").to_string_lossy();
    match &*stem {
        "lib" | "main" | "mod" => file.with_file_name(""),
        stem => file.with_file_name(stem),
    }
}
