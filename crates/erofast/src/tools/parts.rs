//! Divides a file into parts, each of which any free thread may read.
//!
//! Parts begin and end at extents, so no pcluster is decoded twice. Holes are separate
//! parts, which need not be read: a file may claim a size that would take days to read.

use std::ops::Range;
use std::sync::Arc;

use erofs_engine::erofs_format::{ExtentKind, Inode, Reader};
use erofs_engine::{Engine, Error};

/// Target size of a part in bytes; a single extent may be larger (12 MiB at most).
pub const PART: u64 = 1 << 20;

/// A range of bytes of a file; never empty.
pub enum Part {
    /// Bytes that must be read.
    Data(Range<u64>),
    /// Zeros that are not stored.
    Hole(Range<u64>),
    /// Nothing is known about the file from `offset` on. This is always the last part.
    Fault {
        /// The end of the known extents.
        offset: u64,
        /// Why the rest is unknown, with the names of the image and the inode.
        error: String,
    },
}

/// Reads a range of a file into the beginning of `buffer`, which grows if it is too short. Returns
/// the bytes read.
///
/// # Errors
/// The engine cannot read the range.
pub fn read<'b>(
    engine: &Engine,
    inode: &Inode,
    range: &Range<u64>,
    buffer: &'b mut Vec<u8>,
) -> Result<&'b [u8], Error> {
    let length = (range.end - range.start) as usize;
    if buffer.len() < length {
        *buffer = vec![0; length];
    }
    let out = &mut buffer[..length];
    let count = engine.read_at(&engine.waiting(), inode, range.start, out)?;
    Ok(&buffer[..count])
}

/// The parts of a file, in order and without gaps.
pub struct Parts<'a> {
    engine: &'a Engine,
    inode: Arc<Inode>,
    /// Extents gathered for the next part.
    gathered: Range<u64>,
    /// Whether the gathered extents are uncompressed, so that they may be divided anywhere.
    plain: bool,
    /// The next part to return.
    held: Option<Part>,
    /// Whether there are no further extents.
    done: bool,
}

impl<'a> Parts<'a> {
    /// Starts dividing a file.
    pub fn new(engine: &'a Engine, inode: Arc<Inode>) -> Self {
        Self {
            engine,
            inode,
            gathered: 0..0,
            plain: false,
            held: None,
            done: false,
        }
    }

    /// Returns the data gathered up to `end`, and starts gathering from there.
    fn cut(&mut self, end: u64) -> Option<Part> {
        let data = self.gathered.start..end;
        self.gathered.start = end;
        (!data.is_empty()).then_some(Part::Data(data))
    }

    /// Returns the data gathered up to `end`, and then `part`.
    fn cut_before(&mut self, end: u64, part: Part) -> Option<Part> {
        self.held = Some(part);
        let data = self.cut(end);
        self.gathered.start = self.gathered.end;
        data.or_else(|| self.held.take())
    }
}

impl Iterator for Parts<'_> {
    type Item = Part;

    fn next(&mut self) -> Option<Part> {
        if let Some(part) = self.held.take() {
            return Some(part);
        }
        loop {
            if self.plain && self.gathered.end - self.gathered.start > PART {
                return self.cut(self.gathered.start + PART);
            }
            let at = self.gathered.end;
            if self.done || at >= self.inode.size {
                return self.cut(at);
            }
            let (engine, inode) = (self.engine, &self.inode);
            let map = |image: Reader<'_>| image.map(inode, at);
            let extent = match engine.with_image(&engine.waiting(), inode.nid, map) {
                Ok(extent) => extent,
                Err(error) => {
                    self.done = true;
                    let error = format!("{}: nid {}: {error}", engine.name(), inode.nid);
                    return self.cut_before(at, Part::Fault { offset: at, error });
                }
            };
            self.gathered.end = extent.end();
            let compressed = match extent.kind {
                ExtentKind::Hole => return self.cut_before(at, Part::Hole(at..extent.end())),
                ExtentKind::Compressed(_) => true,
                _ => false,
            };
            // An extent joins the preceding ones, unless the part becomes too big.
            let joins = at > self.gathered.start && extent.end() - self.gathered.start <= PART;
            self.plain = !compressed && (self.plain || !joins);
            if !joins && let Some(data) = self.cut(at) {
                return Some(data);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use erofs_engine::erofs_format::FileType;
    use erofs_engine::{EngineOptions, WorkersMode};

    use super::*;
    use crate::tools::tree;

    /// Length of the longest extent that the format allows.
    const EXTENT_MAX: u64 = 12 << 20;

    fn each_file(name: &str, check: &dyn Fn(&Engine, &Arc<Inode>)) {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let options = EngineOptions {
            workers: WorkersMode::Inline,
            ..EngineOptions::default()
        };
        let engine = Engine::open(&fixtures.join(name), &options).expect("a good image");
        let root = engine.inode(engine.root()).expect("a root");
        for visit in tree::walk(&engine, &root) {
            let inode = visit
                .unwrap_or_else(|fault| panic!("{}", fault.error))
                .inode;
            if inode.file_type() == FileType::Regular {
                check(&engine, &inode);
            }
        }
    }

    const IMAGES: [&str; 5] = [
        "kitchen-sink.erofs",
        "lz4-full-index-64k.erofs",
        "zstd-48bit-unaligned.erofs",
        "metabox-dir.erofs",
        "lcluster-16k-bigpcluster.erofs",
    ];

    #[test]
    fn parts_are_the_file_without_gaps_and_no_part_is_too_big() {
        for name in IMAGES {
            each_file(name, &|engine, inode| {
                let mut position = 0;
                for part in Parts::new(engine, inode.clone()) {
                    let range = match part {
                        Part::Data(range) => {
                            assert!(range.end - range.start <= EXTENT_MAX, "{name} {range:?}");
                            range
                        }
                        Part::Hole(range) => range,
                        Part::Fault { offset, error } => panic!("{name} at {offset}: {error}"),
                    };
                    assert_eq!(range.start, position, "{name} nid {}", inode.nid);
                    assert!(range.end > range.start);
                    position = range.end;
                }
                assert_eq!(position, inode.size, "{name} nid {}", inode.nid);
            });
        }
    }

    #[test]
    fn no_pcluster_is_cut() {
        for name in IMAGES {
            each_file(name, &|engine, inode| {
                for part in Parts::new(engine, inode.clone()) {
                    let Part::Data(range) = part else { continue };
                    let extent = engine.extent(inode, range.start).expect("an extent");
                    let extent = extent.expect("an extent");
                    if matches!(extent.kind, ExtentKind::Compressed(_)) {
                        assert_eq!(extent.logical, range.start, "{name} nid {}", inode.nid);
                    }
                }
            });
        }
    }
}
