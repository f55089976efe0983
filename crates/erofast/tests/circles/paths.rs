//! The paths that a source file writes down: its imports, and those in code and macros.

use syn::visit::{self, Visit};
use syn::{Attribute, File, ItemFn, ItemImpl, ItemMod, ItemUse, Macro, Path, UseTree, Visibility};

use super::modules::Imports;

/// Whether an item is for tests only.
pub fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            condition.contains("test") && !condition.contains("not (test")
        }
        _ => false,
    })
}

/// The value of `#[path = "..."]`.
pub fn path_of(attributes: &[Attribute]) -> Option<String> {
    attributes
        .iter()
        .find_map(|attribute| match &attribute.meta {
            syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
                syn::Expr::Lit(syn::ExprLit {
                    lit: syn::Lit::Str(text),
                    ..
                }) => Some(text.value()),
                _ => None,
            },
            _ => None,
        })
}

/// What a file imports, and every path in it.
pub fn of(source: &File) -> (Imports, Vec<Vec<String>>) {
    let mut found = Found::default();
    found.visit_file(source);
    (found.imports, found.paths)
}

#[derive(Default)]
struct Found {
    imports: Imports,
    paths: Vec<Vec<String>>,
}

impl Found {
    fn tree(&mut self, before: &[String], tree: &UseTree) {
        let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.tree(&with(&path.ident), &path.tree),
            UseTree::Name(name) if name.ident == "self" => {
                let name = before.last().cloned().unwrap_or_default();
                self.import(name, before.to_vec());
            }
            UseTree::Name(name) => self.import(name.ident.to_string(), with(&name.ident)),
            UseTree::Rename(name) => self.import(name.rename.to_string(), with(&name.ident)),
            UseTree::Glob(_) => self.paths.push(before.to_vec()),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.tree(before, tree)),
        }
    }

    fn import(&mut self, name: String, path: Vec<String>) {
        self.paths.push(path.clone());
        self.imports.insert(name, path);
    }

    /// Paths in a macro's text, which is not parsed: names with `::` between them.
    fn text(&mut self, text: &str) {
        let joined = text.replace(" :: ", "::");
        let pieces = joined.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | ':'));
        for piece in pieces.filter(|piece| piece.contains("::")) {
            let names = piece.split("::").filter(|name| !name.is_empty());
            self.paths.push(names.map(str::to_owned).collect());
        }
    }
}

impl<'s> Visit<'s> for Found {
    fn visit_item_mod(&mut self, item: &'s ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'s ItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &'s ItemImpl) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'s ItemUse) {
        // A re-export alone does not count as a use: it only adds a name.
        let before = self.paths.len();
        if !is_for_tests(&item.attrs) {
            self.tree(&[], &item.tree);
        }
        if !matches!(item.vis, Visibility::Inherited) {
            self.paths.truncate(before);
        }
    }

    fn visit_path(&mut self, path: &'s Path) {
        let pieces = path.segments.iter().map(|piece| piece.ident.to_string());
        self.paths.push(pieces.collect());
        visit::visit_path(self, path);
    }

    fn visit_attribute(&mut self, _: &'s Attribute) {}

    /// `pub(crate)` holds a path that leads nowhere.
    fn visit_visibility(&mut self, _: &'s Visibility) {}

    fn visit_macro(&mut self, item: &'s Macro) {
        self.text(&item.tokens.to_string());
        visit::visit_macro(self, item);
    }
}
