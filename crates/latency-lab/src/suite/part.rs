//! A part of the suite: an image, from which a program is launched or a tree is read.

use std::io;

use super::tree::Tree;
use crate::read::Test;

/// A program that is launched, or a tree that is read.
pub(super) struct Part {
    /// Name of the part for `--only`.
    pub(super) name: &'static str,
    /// Title in the table.
    pub(super) title: &'static str,
    /// Fills the tree and returns the command line of the program, if the part has one. An error
    /// says why this machine cannot have the rows of this part.
    pub(super) collect: fn(&Tree) -> io::Result<Vec<String>>,
    /// The tests that read a tree.
    pub(super) tests: &'static [Test],
}

impl Part {
    pub(super) const fn program(
        name: &'static str,
        title: &'static str,
        collect: fn(&Tree) -> io::Result<Vec<String>>,
    ) -> Part {
        Part {
            name,
            title,
            collect,
            tests: &[],
        }
    }
}
