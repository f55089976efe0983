//! The two generations of the format.

/// How digests are salted and packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashType {
    /// Type 0: salt behind the block, digests one after the other.
    ChromeOs,
    /// Type 1: salt before the block, each digest padded to a power of two.
    #[default]
    Normal,
}
