//! The hash functions, with the salt mixed in.

use std::str::FromStr;

use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

use crate::error::{Error, Result};

/// Size of the longest digest of any algorithm, in bytes.
pub(crate) const MAX_DIGEST: usize = 64;

/// A hash function, named as in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HashAlgorithm {
    /// `sha224`
    Sha224,
    /// `sha256`, the default of veritysetup
    Sha256,
    /// `sha384`
    Sha384,
    /// `sha512`
    Sha512,
}

/// The way digests are salted and packed: the two generations of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HashType {
    /// Type 0: salt after the block, digests packed one after the other.
    ChromeOs,
    /// Type 1: salt before the block, each digest padded to a power of two.
    #[default]
    Normal,
}

impl HashAlgorithm {
    /// Size of a digest in bytes.
    pub fn digest_size(self) -> usize {
        match self {
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

impl FromStr for HashAlgorithm {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "sha224" => Ok(Self::Sha224),
            "sha256" => Ok(Self::Sha256),
            "sha384" => Ok(Self::Sha384),
            "sha512" => Ok(Self::Sha512),
            _ => Error::format(format!(
                "hash algorithm {name:?} is not supported (supported: sha224, sha256, sha384, \
                 sha512)"
            )),
        }
    }
}

/// Hashes the blocks of one tree. A type 1 tree hashes the salt first, so the state after the salt
/// is computed once and copied for each block.
#[derive(Clone, Debug)]
pub(crate) struct BlockHasher {
    state: State,
    /// The salt of a type 0 tree, which is hashed after the block.
    suffix: Vec<u8>,
}

#[derive(Clone, Debug)]
enum State {
    Sha224(Sha224),
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl BlockHasher {
    pub(crate) fn new(algorithm: HashAlgorithm, hash_type: HashType, salt: &[u8]) -> Self {
        let (prefix, suffix) = match hash_type {
            HashType::Normal => (salt, &[][..]),
            HashType::ChromeOs => (&[][..], salt),
        };
        let state = match algorithm {
            HashAlgorithm::Sha224 => State::Sha224(Sha224::new_with_prefix(prefix)),
            HashAlgorithm::Sha256 => State::Sha256(Sha256::new_with_prefix(prefix)),
            HashAlgorithm::Sha384 => State::Sha384(Sha384::new_with_prefix(prefix)),
            HashAlgorithm::Sha512 => State::Sha512(Sha512::new_with_prefix(prefix)),
        };
        Self {
            state,
            suffix: suffix.to_vec(),
        }
    }

    /// Whether `block` has the digest `expected`, which has the algorithm's size.
    pub(crate) fn matches(&self, block: &[u8], expected: &[u8]) -> bool {
        match &self.state {
            State::Sha224(state) => self.finish(state, block)[..] == *expected,
            State::Sha256(state) => self.finish(state, block)[..] == *expected,
            State::Sha384(state) => self.finish(state, block)[..] == *expected,
            State::Sha512(state) => self.finish(state, block)[..] == *expected,
        }
    }

    fn finish<D: Digest + Clone>(&self, state: &D, block: &[u8]) -> sha2::digest::Output<D> {
        state
            .clone()
            .chain_update(block)
            .chain_update(&self.suffix)
            .finalize()
    }
}
