//! dm-verity in user space: checks blocks against a hash tree written by `veritysetup format`.
//!
//! Verifying needs no device-mapper, no root privileges and no particular filesystem. A tree is
//! [opened](Tree::open) from [`Parameters`] (those of a [superblock](read_superblock), or the
//! caller's own), a root hash, and the [`HashDevice`] that holds the hash area. Then
//! [`Tree::verify`] checks bytes that the caller has read. The format is that of the kernel's
//! Documentation/admin-guide/device-mapper/verity.rst and of cryptsetup's on-disk header, version
//! 1. [`verify_signature`] checks a signature of the root hash.
//!
//! ```
//! use dm_verity::{HashAlgorithm, Parameters, RootHash, Tree};
//!
//! // One block: its hash is the root hash, and the tree has no levels.
//! let data = vec![7u8; 512];
//! let parameters = Parameters::new(HashAlgorithm::Sha256, 512, 512, 1, b"salt".to_vec(), 0)?;
//! let root: RootHash =
//!     "39c8c04320e4ed2f96367f4c83b9cd8fff68b43d3bfdb66a59c4899576806b20".parse()?;
//! let hashes = Vec::<u8>::new();
//! let tree = Tree::open(parameters, &root, &hashes)?;
//! tree.verify(&hashes, &data, 0)?;
//! assert!(tree.verify(&hashes, &vec![8u8; 512], 0).is_err());
//! # Ok::<(), dm_verity::Error>(())
//! ```
#![forbid(unsafe_code)]

mod cache;
mod error;
mod hash;
mod hash_device;
mod layout;
mod parameters;
mod root_hash;
mod signature;
mod superblock;
mod tree;

pub use error::{Error, Mismatch, Result};
pub use hash::{HashAlgorithm, HashType};
pub use hash_device::HashDevice;
pub use parameters::{MAX_BLOCK_SIZE, MAX_SALT, MIN_BLOCK_SIZE, Parameters};
pub use root_hash::RootHash;
pub use signature::{Certificates, MAX_SIGNATURE, STANDARD_FOLDERS, verify_signature};
pub use superblock::{SUPERBLOCK_SIZE, read_superblock};
pub use tree::Tree;
