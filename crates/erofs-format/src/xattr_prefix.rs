//! Long prefixes of xattr names.
//!
//! An opened image holds the table of these prefixes, which lookups of attributes read.

/// An entry of the table of long prefixes.
#[derive(Clone, Debug)]
pub(crate) struct LongPrefix {
    pub namespace: u8,
    pub infix: Vec<u8>,
}
