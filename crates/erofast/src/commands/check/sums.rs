//! Comparing files with the manifest.

use std::io::{self, Read};
use std::sync::Arc;

use erofs_engine::Engine;
use erofs_engine::erofs_format::Inode;
use sha2::{Digest, Sha256};

use super::found::Found;
use super::manifest::Sum;
use super::report::Fault;
use crate::name::hex;
use crate::parts::{Part, Parts};

/// The longest hole that is hashed: an image may claim a size that would take days to hash.
const HOLE_MAX: u64 = 1 << 40;

/// A file whose expected sum is known.
#[derive(Debug)]
pub struct Whole {
    /// Position of the name in the walk.
    pub order: usize,
    pub path: Arc<[u8]>,
    pub inode: Arc<Inode>,
    pub expected: Sum,
    /// Whether its bytes are counted; false if they are counted under another name of the file.
    pub counts: bool,
}

/// Reads a whole file and compares its sum.
pub fn compare(engine: &Engine, whole: &Whole, buffer: &mut Vec<u8>, found: &Found) {
    let Whole {
        order,
        path,
        inode,
        expected,
        counts,
    } = whole;
    let mut hasher = Sha256::new();
    for part in Parts::new(engine, inode.clone()) {
        let (offset, bytes) = match hash(engine, inode, part, buffer, &mut hasher) {
            Ok(done) => done,
            Err((offset, error)) => {
                return found.add_content(*order, offset, Fault::new(path, inode.nid, error));
            }
        };
        debug_assert!(offset + bytes <= inode.size);
        if *counts {
            found.bar.add(bytes);
        }
    }
    let sum: Sum = hasher.finalize().into();
    if sum == *expected {
        *found.matched() += 1;
        return;
    }
    let what = format!("its SHA-256 is {}, expected {}", hex(&sum), hex(expected));
    found.add(*order, Fault::new(path, inode.nid, what));
}

/// Hashes one part and returns its offset and length, or its offset and the fault.
fn hash(
    engine: &Engine,
    inode: &Inode,
    part: Part,
    buffer: &mut Vec<u8>,
    hasher: &mut Sha256,
) -> Result<(u64, u64), (u64, String)> {
    match part {
        Part::Data(range) => {
            let length = (range.end - range.start) as usize;
            if buffer.len() < length {
                buffer.resize(length, 0);
            }
            let out = &mut buffer[..length];
            let read = engine.read_at(&engine.waiting(), inode, range.start, out);
            read.map_err(|error| (range.start, error.to_string()))?;
            hasher.update(&*out);
            Ok((range.start, length as u64))
        }
        Part::Hole(range) => {
            let length = range.end - range.start;
            if length > HOLE_MAX {
                let what = format!("a hole of {length} bytes is too large to hash");
                return Err((range.start, what));
            }
            let hashed = io::copy(&mut io::repeat(0).take(length), hasher);
            hashed.map_err(|error| (range.start, error.to_string()))?;
            Ok((range.start, length))
        }
        Part::Fault { offset, error } => {
            let (name, nid) = (engine.name(), inode.nid);
            Err((offset, format!("{name}: nid {nid}: {error}")))
        }
    }
}
