//! Comparing files with the manifest.

use std::sync::Arc;

use erofs_engine::erofs_format::{FileType, Inode};
use erofs_engine::{Engine, ReadContext};
use sha2::{Digest, Sha256};

use super::manifest::{Sum, hex};
use super::{Found, Task, Walk, fault};
use crate::parts::{Part, Parts};

/// Zeros that are hashed at once.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A file may claim to be larger than anybody's patience: no longer hole is hashed.
const HOLE_MAX: u64 = 1 << 40;

/// A file whose sum is known.
#[derive(Debug)]
pub struct Whole {
    /// Place of the name in the walk.
    order: usize,
    path: Arc<[u8]>,
    inode: Arc<Inode>,
    expected: Sum,
    /// Its bytes count: they are not read by another name too.
    counts: bool,
}

impl Walk<'_> {
    /// Gives a file to a reader if the manifest lists its name. Whether that is all its content
    /// needs is returned.
    pub(super) fn compare(
        &mut self,
        path: &[u8],
        inode: &Arc<Inode>,
        first: bool,
    ) -> anyhow::Result<bool> {
        let Some(manifest) = &mut self.manifest else {
            return Ok(false);
        };
        let regular = inode.file_type() == FileType::Regular;
        let Some(expected) = manifest.remove(path) else {
            if let Some(compared) = &mut self.report.manifest {
                compared.unlisted += u64::from(regular);
            }
            return Ok(false);
        };
        // sha256sum reads what a symlink leads to.
        let target = match inode.file_type() {
            FileType::Symlink => self.engine.resolve(path, true),
            _ => Ok(inode.clone()),
        };
        let what = match target {
            Ok(target) if target.file_type() == FileType::Regular => {
                let bytes = target.size;
                let whole = Whole {
                    order: self.order,
                    path: path.into(),
                    inode: target,
                    expected,
                    counts: regular && first,
                };
                self.giver.give(Task::Whole(whole), bytes)?;
                return Ok(regular);
            }
            Ok(_) => "the manifest lists it, but it is not a regular file".to_owned(),
            Err(error) => format!("the manifest lists it, but it leads nowhere: {error}"),
        };
        self.found.add(self.order, fault(path, inode.nid, what));
        Ok(false)
    }

    /// What the manifest lists and the walk did not meet.
    pub(super) fn name_missing(&mut self) {
        for (path, _) in self.manifest.take().into_iter().flatten() {
            self.order += 1;
            let what = "the manifest lists it, but it is not in the image";
            self.found.add(self.order, fault(&path, 0, what));
        }
    }
}

/// A reader's part: reads all of a file, and compares.
pub(super) fn compare(engine: &Engine, whole: &Whole, buffer: &mut Vec<u8>, found: &Found) {
    let Whole {
        order,
        path,
        inode,
        expected,
        counts,
    } = whole;
    let mut hasher = Sha256::new();
    for part in Parts::new(engine.image(), inode.clone()) {
        let (offset, bytes) = match hash(engine, inode, part, buffer, &mut hasher) {
            Ok(done) => done,
            Err((offset, error)) => {
                return found.add_content(*order, offset, fault(path, inode.nid, error));
            }
        };
        debug_assert!(offset + bytes <= inode.size);
        if *counts {
            found.gauge.add(bytes);
        }
    }
    let sum: Sum = hasher.finalize().into();
    if sum == *expected {
        *found.matched() += 1;
        return;
    }
    let what = format!(
        "its sha256 is {}, the manifest says {}",
        hex(&sum),
        hex(expected)
    );
    found.add(*order, fault(path, inode.nid, what));
}

/// Hashes one part: its offset and length, or its offset and what is wrong.
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
            let read = engine.read_at(inode, range.start, out, ReadContext::Worker);
            read.map_err(|error| (range.start, error.to_string()))?;
            hasher.update(&*out);
            Ok((range.start, length as u64))
        }
        Part::Hole(range) => {
            let length = range.end - range.start;
            if length > HOLE_MAX {
                let what = format!("a hole of {length} bytes is too much to hash");
                return Err((range.start, what));
            }
            let mut left = length;
            while left > 0 {
                let now = left.min(ZEROS.len() as u64);
                hasher.update(&ZEROS[..now as usize]);
                left -= now;
            }
            Ok((range.start, length))
        }
        Part::Fault { offset, error } => {
            let (name, nid) = (engine.name(), inode.nid);
            Err((offset, format!("{name}: nid {nid}: {error}")))
        }
    }
}
