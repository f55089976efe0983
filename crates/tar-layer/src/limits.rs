//! How much an archive may take.

/// Limits of what an archive may make its reader do.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The most bytes of all regular files, holes included.
    pub content: u64,
    /// The most bytes of memory for names and attributes, roughly.
    pub names: u64,
}
