//! Mutants of good images: some fields of their structures are changed, and everything else stays
//! the same. Images of random bytes seldom get past the checks of the superblock; images with a few
//! changed fields do.

use std::collections::HashSet;
use std::ops::{ControlFlow, Range};

use erofs_format::dir::{self, Item};
use erofs_format::{ExtentKind, FileType, Inode, Nid, Reader};

use crate::content::{Budget, Content, Opened, open_whole};
use crate::holes::{Hole, holes};

/// The most inodes whose structures are changed.
const INODES: usize = 300;
/// Number of bytes that may be changed after an inode (in its map or inline content) and in a
/// stream.
const BEHIND: usize = 256;
const STREAM: usize = 64;
/// The most pclusters of an inode that may become holes.
const HOLES: usize = 64;
/// Bytes of a directory entry.
const ENTRY: usize = 12;
/// Offset of the superblock.
const SUPERBLOCK: usize = 1024;
/// Offset and length of each field of the superblock.
const SUPERBLOCK_FIELDS: [(usize, usize); 19] = [
    (8, 4),
    (12, 1),
    (13, 1),
    (14, 2),
    (16, 8),
    (36, 4),
    (40, 4),
    (44, 4),
    (80, 4),
    (84, 2),
    (86, 2),
    (88, 2),
    (90, 1),
    (91, 1),
    (92, 4),
    (96, 8),
    (104, 1),
    (112, 8),
    (120, 8),
];
/// Fields of a compact inode, and of an extended inode where its layout differs.
const INODE_FIELDS: [(usize, usize); 8] = [
    (0, 2),
    (2, 2),
    (4, 2),
    (6, 2),
    (8, 4),
    (8, 8),
    (16, 4),
    (20, 4),
];

/// Bytes of a structure.
#[derive(Clone, Debug)]
struct Field(Range<usize>);

/// A good image and the places of its structures.
#[derive(Debug)]
pub struct Mutator {
    image: Vec<u8>,
    /// By kind: superblock, inodes, attributes, maps and inline content, entries, names, streams. A
    /// kind is chosen first, since some kinds have many more fields than others.
    kinds: [Vec<Field>; 7],
    /// Pclusters that may become holes.
    holes: Vec<Hole>,
}

impl Mutator {
    /// Returns `None` if this is not a readable image.
    pub fn new(image: &[u8]) -> Option<Self> {
        let opened = open_whole(image, &Budget::new()).ok()?;
        let reader = opened.reader();
        let mut this = Mutator {
            image: image.to_vec(),
            kinds: Default::default(),
            holes: Vec::new(),
        };
        for (at, length) in SUPERBLOCK_FIELDS {
            this.add(0, SUPERBLOCK + at, length);
        }
        let mut waiting = vec![reader.superblock().root_nid];
        let mut seen = HashSet::new();
        while let Some(nid) = waiting.pop() {
            if seen.len() == INODES || !seen.insert(nid) {
                continue;
            }
            if let Ok(inode) = reader.inode(nid) {
                this.inode(reader, &inode);
                let holes = holes(image, nid).into_iter().take(HOLES);
                this.holes.extend(holes);
                waiting.extend(children(&opened, inode));
            }
        }
        Some(this)
    }

    /// The mutant with this number: the same number always gives the same mutant.
    pub fn mutant(&self, number: u64) -> Vec<u8> {
        let mut random = Random(number);
        let mut mutant = self.image.clone();
        // The checksum is not under test.
        mutant[SUPERBLOCK + 8] &= !1;
        if !self.holes.is_empty() && random.below(4) == 0 {
            self.holes[random.below(self.holes.len())].punch(&mut mutant);
        }
        for _ in 0..1 + random.below(4) {
            let kind = &self.kinds[random.below(self.kinds.len())];
            if !kind.is_empty() {
                let field = &kind[random.below(kind.len())];
                change(&mut mutant[field.0.clone()], &mut random);
            }
        }
        mutant
    }

    fn add(&mut self, kind: usize, at: usize, length: usize) {
        if at + length <= self.image.len() {
            self.kinds[kind].push(Field(at..at + length));
        }
    }

    fn add_all(&mut self, kind: usize, bytes: Range<usize>, length: usize) {
        for at in bytes.step_by(length) {
            self.add(kind, at, length);
        }
    }

    /// Adds an inode, the bytes after it, and the place of its content.
    fn inode(&mut self, image: Reader<'_>, inode: &Inode) {
        let superblock = image.superblock();
        let block = superblock.block_size as usize;
        if !inode.in_metabox() {
            let at = superblock.meta_block as usize * block + inode.nid as usize * 32;
            for (offset, length) in INODE_FIELDS {
                self.add(1, at + offset, length);
            }
            let attributes = at + if inode.extended { 64 } else { 32 };
            let bytes = match usize::from(inode.xattr_icount) {
                0 => 0,
                count => 12 + 4 * (count - 1),
            };
            self.add_all(2, attributes..attributes + bytes, 4);
            let body = attributes + bytes;
            self.add_all(3, body..body + BEHIND, 4);
        }
        if let Ok(extent) = image.map(inode, 0) {
            let directory = inode.file_type() == FileType::Directory;
            match extent.kind {
                ExtentKind::Raw { physical, .. } | ExtentKind::Meta { physical, .. }
                    if directory =>
                {
                    self.entries(physical as usize, inode.size.min(block as u64) as usize);
                }
                ExtentKind::Compressed(pcluster) => {
                    let start = pcluster.location.physical as usize;
                    let end = start + (pcluster.length as usize).min(STREAM);
                    self.add_all(6, start..end, 1);
                }
                _ => {}
            }
        }
    }

    fn entries(&mut self, at: usize, length: usize) {
        // The first name follows the last entry.
        let Some(bytes) = self.image.get(at + 8..at + 10) else {
            return;
        };
        let names = usize::from(u16::from_le_bytes([bytes[0], bytes[1]])).min(length);
        for entry in (at..at + names).step_by(ENTRY) {
            self.add(4, entry, 8);
            self.add(4, entry + 8, 2);
            self.add(4, entry + 10, 1);
        }
        self.add_all(5, at + names..at + length, 1);
    }
}

fn children(image: &Opened, inode: Inode) -> Vec<Nid> {
    let mut children = Vec::new();
    if inode.file_type() == FileType::Directory {
        let content = Content::new(image, inode, &Budget::new());
        let block_size = image.reader().superblock().block_size;
        let _ = dir::read(&content, block_size, 0, &mut |item| {
            if let Item::Entry(entry) = item {
                children.push(entry.nid);
            }
            match children.len() < INODES {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
    }
    children
}

/// Replaces a little-endian number with one near it, one at an end of its range, or any other.
fn change(field: &mut [u8], random: &mut Random) {
    let mut bytes = [0; 8];
    bytes[..field.len()].copy_from_slice(field);
    let value = u64::from_le_bytes(bytes);
    let bits = 8 * field.len();
    let changed = match random.below(8) {
        0 => 0,
        1 => u64::MAX,
        2 => 1 << (bits - 1),
        3 => value.wrapping_add(1),
        4 => value.wrapping_sub(1),
        5 => value ^ 1 << random.below(bits),
        6 => random.next() >> random.below(64),
        _ => value << random.below(bits),
    };
    field.copy_from_slice(&changed.to_le_bytes()[..field.len()]);
}

/// A sequence determined by its start (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
