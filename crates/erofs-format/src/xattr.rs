//! Extended attributes.

/// One extended attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Xattr {
    /// Whole name, with its prefix (`user.` and so on).
    pub name: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}
