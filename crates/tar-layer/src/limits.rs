//! Limits of the resources that an archive may use.

/// Limits for reading an archive.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most bytes of all regular files, holes included.
    pub content: u64,
    /// The most bytes of memory for names and attributes, roughly.
    pub names: u64,
}
