//! How a server begins.

/// How a server begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// Started by a user: it starts its mount helper.
    Foreground,
    /// Started by its mount helper.
    Background,
    /// Started by its mount helper, for a mount that is there already.
    Successor,
}
