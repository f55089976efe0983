//! The two generations of the format.

/// The way digests are salted and packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashType {
    /// Type 0: salt after the block, digests packed one after the other.
    ChromeOs,
    /// Type 1: salt before the block, each digest padded to a power of two.
    #[default]
    Normal,
}
