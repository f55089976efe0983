//! A writer of dm-verity trees that shares only the hash functions with the crate. Tests use it to
//! make their trees, and compare its output with veritysetup's if that is installed.
#![allow(dead_code)] // each test binary uses its part

use sha2::{Digest, Sha256, Sha512};

/// The parameters of a tree to write.
#[derive(Clone, Debug)]
pub struct Recipe {
    pub algorithm: &'static str,
    pub data_block: usize,
    pub hash_block: usize,
    pub salt: Vec<u8>,
    pub hash_type: u32,
    pub superblock: bool,
}

impl Recipe {
    pub fn new(algorithm: &'static str, block: usize, salt: &[u8]) -> Self {
        Self {
            algorithm,
            data_block: block,
            hash_block: block,
            salt: salt.to_vec(),
            hash_type: 1,
            superblock: true,
        }
    }

    fn digest(&self, block: &[u8]) -> Vec<u8> {
        let message = match self.hash_type {
            1 => [&self.salt, block].concat(),
            _ => [block, &self.salt].concat(),
        };
        match self.algorithm {
            "sha256" => Sha256::digest(message).to_vec(),
            "sha512" => Sha512::digest(message).to_vec(),
            other => panic!("{other}: not in these tests"),
        }
    }

    /// All digests of `data`, packed into hash blocks.
    fn level(&self, data: &[u8], block: usize) -> Vec<u8> {
        let size = self.digest(&[]).len();
        let slot = match self.hash_type {
            1 => size.next_power_of_two(),
            _ => size,
        };
        // The number of digests is a power of two, even if more would fit.
        let per_block = 1 << (self.hash_block / size).ilog2();
        let mut level = Vec::new();
        for blocks in data.chunks(block * per_block) {
            let start = level.len();
            for block in blocks.chunks(block) {
                let mut digest = self.digest(block);
                digest.resize(slot, 0);
                level.extend(digest);
            }
            level.resize(start + self.hash_block, 0);
        }
        level
    }

    /// Returns the hash area (beginning with a superblock, if requested) and the root hash in
    /// hexadecimal digits.
    pub fn write(&self, data: &[u8]) -> (Vec<u8>, String) {
        assert!(data.len().is_multiple_of(self.data_block));
        let mut area = Vec::new();
        if self.superblock {
            area = self.superblock(data.len() / self.data_block);
            area.resize(area.len().next_multiple_of(self.hash_block), 0);
        }
        let mut levels = Vec::new();
        let (mut below, mut block) = (data.to_vec(), self.data_block);
        while below.len() > block {
            below = self.level(&below, block);
            block = self.hash_block;
            levels.push(below.clone());
        }
        area.extend(levels.iter().rev().flatten());
        let root = self.digest(&below);
        (
            area,
            root.iter().map(|byte| format!("{byte:02x}")).collect(),
        )
    }

    fn superblock(&self, blocks: usize) -> Vec<u8> {
        let mut bytes = vec![0; 512];
        bytes[..8].copy_from_slice(b"verity\0\0");
        bytes[8] = 1;
        bytes[12..16].copy_from_slice(&self.hash_type.to_le_bytes());
        bytes[16..32].copy_from_slice(&[0xa5; 16]);
        bytes[32..32 + self.algorithm.len()].copy_from_slice(self.algorithm.as_bytes());
        bytes[64..68].copy_from_slice(&(self.data_block as u32).to_le_bytes());
        bytes[68..72].copy_from_slice(&(self.hash_block as u32).to_le_bytes());
        bytes[72..80].copy_from_slice(&(blocks as u64).to_le_bytes());
        bytes[80..82].copy_from_slice(&(self.salt.len() as u16).to_le_bytes());
        bytes[88..88 + self.salt.len()].copy_from_slice(&self.salt);
        bytes
    }
}

/// `blocks` blocks that differ from each other, the same ones in every run.
pub fn data(blocks: usize, block: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..blocks * block).map(|_| next()).collect()
}
