//! Limits on the resources that an archive may use.

/// Limits for reading an archive.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Maximum size of all regular files together in bytes, holes included.
    pub content: u64,
    /// Approximate maximum of the memory for names and attributes, in bytes.
    pub names: u64,
}
