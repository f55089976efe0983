//! Nodes in the replies of a filesystem.

use crate::wire::Attr;

/// The result of a lookup: node and attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The node; never 0, and 1 only for the root.
    pub node: u64,
    /// Its attributes.
    pub attr: Attr,
}

/// The target of an LSEEK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// The next byte that is stored.
    Data,
    /// The next byte that is not; the end of the file counts as one.
    Hole,
}
