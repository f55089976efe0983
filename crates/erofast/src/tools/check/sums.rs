//! Comparing files with the manifest.

use std::io::{self, Read};

use erofs_engine::Engine;
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
        let (offset, hashed) = match part {
            Part::Data(range) => {
                let read = parts::read(engine, &task.inode, &range, buffer);
                let hashed = read.map(|bytes| {
                    hasher.update(bytes);
                    bytes.len() as u64
                });
                (range.start, hashed.map_err(|error| error.to_string()))
            }
            Part::Hole(range) if range.end - range.start > HOLE_MAX => {
                let length = range.end - range.start;
                let what = format!("a hole of {length} bytes is too large to hash");
                (range.start, Err(what))
            }
            Part::Hole(range) => {
                let mut zeros = io::repeat(0).take(range.end - range.start);
                let hashed = io::copy(&mut zeros, &mut hasher);
                (range.start, hashed.map_err(|error| error.to_string()))
            }
            Part::Fault { offset, error } => (offset, Err(error)),
        };
        match hashed {
            Ok(bytes) if counts => found.bar.add(bytes),
            Ok(_) => {}
            Err(error) => return found.add_content(task.order, offset, task.fault(error)),
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
