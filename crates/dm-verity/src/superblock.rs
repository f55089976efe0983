//! The superblock that `veritysetup format` writes before the tree.

use crate::error::{Error, Result};
use crate::hash::HashType;
use crate::hash_device::HashDevice;
use crate::parameters::{MAX_SALT, Parameters};

/// Size of the superblock in bytes. The tree starts at the first hash block after it.
pub const SUPERBLOCK_SIZE: usize = 512;

const SIGNATURE: &[u8; 8] = b"verity\0\0";

/// Reads the superblock at byte `offset` of the hash device.
///
/// The root hash does not cover the superblock, so every field that has only one valid value,
/// including padding, must have that value. The UUID may have any value, and nothing depends on it.
///
/// # Errors
/// There is no superblock, or it is unsupported or inconsistent.
pub fn read_superblock(hash_device: &impl HashDevice, offset: u64) -> Result<Parameters> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    hash_device
        .read_exact_at(&mut bytes, offset)
        .map_err(|source| Error::Read { offset, source })?;
    parse(&bytes, offset)
}

fn parse(bytes: &[u8; SUPERBLOCK_SIZE], offset: u64) -> Result<Parameters> {
    if &bytes[..8] != SIGNATURE {
        return Error::format(format!("no dm-verity superblock at byte {offset}"));
    }
    let version = u32_at(bytes, 8);
    if version != 1 {
        return Error::format(format!(
            "dm-verity superblock version {version}: only 1 is supported"
        ));
    }
    let hash_type = match u32_at(bytes, 12) {
        0 => HashType::ChromeOs,
        1 => HashType::Normal,
        other => return Error::format(format!("dm-verity hash type {other}: must be 0 or 1")),
    };
    // The UUID is at bytes 16 to 32.
    let algorithm = text(&bytes[32..64])?.parse()?;
    let salt_size = usize::from(u16::from_le_bytes([bytes[80], bytes[81]]));
    if salt_size > MAX_SALT {
        return Error::format(format!(
            "a salt of {salt_size} bytes; the limit is {MAX_SALT}"
        ));
    }
    let salt = 88..88 + salt_size;
    check_zero(bytes, 82..88)?;
    check_zero(bytes, salt.end..SUPERBLOCK_SIZE)?;
    let hash_block_size = u32_at(bytes, 68);
    let parameters = Parameters {
        hash_type,
        algorithm,
        data_block_size: u32_at(bytes, 64),
        hash_block_size,
        data_blocks: u64::from_le_bytes(array(&bytes[72..80])),
        salt: bytes[salt].to_vec(),
        tree_start: tree_start(offset, hash_block_size)?,
    };
    parameters.check()?;
    Ok(parameters)
}

/// Offset of the first hash block after the superblock.
fn tree_start(offset: u64, hash_block_size: u32) -> Result<u64> {
    let end = offset.checked_add(SUPERBLOCK_SIZE as u64);
    match end.and_then(|end| end.checked_next_multiple_of(hash_block_size.into())) {
        Some(start) => Ok(start),
        None => Error::format(format!(
            "hash block size {hash_block_size} after byte {offset}: out of range"
        )),
    }
}

/// A name padded with zeros to the end of its field.
fn text(field: &[u8]) -> Result<&str> {
    let end = field.iter().position(|byte| *byte == 0);
    let (name, rest) = field.split_at(end.unwrap_or(field.len()));
    match std::str::from_utf8(name) {
        Ok(name) if rest.iter().all(|byte| *byte == 0) => Ok(name),
        _ => Error::format("the name of the hash algorithm is not valid".into()),
    }
}

fn check_zero(bytes: &[u8], range: std::ops::Range<usize>) -> Result<()> {
    match range.clone().find(|at| bytes[*at] != 0) {
        Some(at) => Error::format(format!("byte {at} of the dm-verity superblock must be 0")),
        None => Ok(()),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(&bytes[at..at + 4]))
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("a range of that length")
}
