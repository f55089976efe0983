//! Comparing files with the manifest.

use std::io::{self, Read};

use erofs_engine::Engine;
use erofs_engine::erofs_format::Inode;
use sha2::{Digest, Sha256};

use super::found::Found;
use super::manifest::Sum;
use super::task::Task;
use crate::tools::name::hex;
use crate::tools::parts::{self, Part, Parts};

/// The longest hole that is hashed: an image may claim a size that would take days to hash.
const HOLE_MAX: u64 = 1 << 40;

/// Reads a whole file and compares its sum. `counts` says whether to count its bytes.
pub fn compare(
    engine: &Engine,
    task: &Task,
    (expected, counts): (&Sum, bool),
    buffer: &mut Vec<u8>,
    found: &Found,
) {
    let mut hasher = Sha256::new();
    for part in Parts::new(engine, task.inode.clone()) {
        match hash(engine, &task.inode, part, buffer, &mut hasher) {
            Ok(bytes) if counts => found.bar.add(bytes),
            Ok(_) => {}
            Err((offset, error)) => {
                return found.add_content(task.order, offset, task.fault(error));
            }
        }
    }
    let sum: Sum = hasher.finalize().into();
    if sum == *expected {
        found.results().matched += 1;
        return;
    }
    let what = format!("its SHA-256 is {}, expected {}", hex(&sum), hex(expected));
    found.add(task.order, task.fault(what));
}

/// Hashes one part. Returns the part's length, or the offset of a fault and what it is.
fn hash(
    engine: &Engine,
    inode: &Inode,
    part: Part,
    buffer: &mut Vec<u8>,
    hasher: &mut Sha256,
) -> Result<u64, (u64, String)> {
    match part {
        Part::Data(range) => {
            let read = parts::read(engine, inode, &range, buffer);
            hasher.update(read.map_err(|error| (range.start, error.to_string()))?);
            Ok(range.end - range.start)
        }
        Part::Hole(range) => {
            let length = range.end - range.start;
            if length > HOLE_MAX {
                let what = format!("a hole of {length} bytes is too large to hash");
                return Err((range.start, what));
            }
            let hashed = io::copy(&mut io::repeat(0).take(length), hasher);
            hashed.map_err(|error| (range.start, error.to_string()))?;
            Ok(length)
        }
        Part::Fault { offset, error } => Err((offset, error)),
    }
}
