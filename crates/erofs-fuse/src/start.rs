//! How a server begins.

/// How a server begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// As the process that a user started: it starts its mount helper.
    Foreground,
    /// Started by its mount helper: it mounts.
    Background,
    /// Started by its mount helper, for a mount that is there already.
    Successor,
}
