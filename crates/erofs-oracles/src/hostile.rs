//! Generates hostile images: a reader without limits would need hours or terabytes for each, or
//! would be unsafe.
//!
//! All of them are sparse files of a few KiB on disk. The root directory holds `good`, a file of 5
//! bytes that stays readable regardless of the rest, and `huge`, the hostile inode (some classes
//! use other names).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a block.
const BLOCK: usize = 4096;
/// Offset of nid 0.
const META: u64 = BLOCK as u64;
const DIRECTORY: u16 = 0o040_755;
const REGULAR: u16 = 0o100_644;
const SYMLINK: u16 = 0o120_777;
/// Bytes between two inodes, which leaves room for inline content.
const STRIDE: u64 = 1024;
/// Size of an inode, after which the map header begins.
const INODE: u64 = 64;
const HEADER: u64 = 8;
/// Decoded bytes of the one pcluster that all extents share.
const DECODED: usize = 12 << 20;
/// Number of extents that share this pcluster.
const SHARING: u64 = 340;

/// A class of hostile images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A directory of a terabyte, each block of which holds only broken entries.
    BrokenTerabyte,
    /// A directory of broken entries in 340 extents of 12 MiB that share one pcluster.
    BrokenSharedPcluster,
    /// A directory of 340 extents that share one pcluster, with valid entries out of order.
    DisorderSharedPcluster,
    /// A directory of 340 extents that share one pcluster: one block in 15 has a valid entry, the
    /// others only broken ones.
    SparseNames,
    /// A file of 8 TiB in 2^31 extents with records of 4 bytes.
    SmallRecords,
    /// A directory of 64 GiB that repeats one block of valid entries for one inode.
    RepeatedNames,
    /// A directory of 80 KiB with names out of order.
    Unsorted,
    /// 2,500 nested directories with names of 250 bytes, starting at `d` in the root.
    Deep,
    /// A symlink `name` to `/tmp`, and a directory `name` with a file `below` in it.
    SymlinkThenFile,
    /// Two files with the same name, `name`.
    TwiceTheName,
    /// A name with U+202E (right-to-left override), and a symlink `l` whose target contains this
    /// character.
    Bidirectional,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 11] = [
        Class::BrokenTerabyte,
        Class::BrokenSharedPcluster,
        Class::DisorderSharedPcluster,
        Class::SparseNames,
        Class::SmallRecords,
        Class::RepeatedNames,
        Class::Unsorted,
        Class::Deep,
        Class::SymlinkThenFile,
        Class::TwiceTheName,
        Class::Bidirectional,
    ];
}

/// Writes an image of this class.
pub fn write(class: Class, path: &Path) -> io::Result<()> {
    let mut maker = Maker::new(path)?;
    let good = maker.inline(REGULAR, b"good\n")?;
    let root: Vec<(&[u8], u64)> = match class {
        Class::BrokenTerabyte => vec![(b"huge", maker.broken_terabyte()?)],
        Class::BrokenSharedPcluster => {
            let block = directory_block(&[(b"/", 1), (b"//", 1)]);
            vec![(b"huge", maker.shared_pcluster(&block)?)]
        }
        Class::DisorderSharedPcluster => {
            // These names sort before "absent", so a search for it ends at the last bytes of the
            // pcluster.
            let block = directory_block(&[(b"ab", good), (b"aa", good)]);
            vec![(b"huge", maker.shared_pcluster(&block)?)]
        }
        Class::SparseNames => {
            let broken = directory_block(&[(b"/", 1), (b"//", 1)]);
            let sound = directory_block(&[(b"name", good)]);
            let blocks: Vec<u8> = [&broken; 14]
                .into_iter()
                .chain([&sound])
                .flatten()
                .copied()
                .collect();
            vec![(b"huge", maker.shared_pcluster(&blocks)?)]
        }
        Class::SmallRecords => vec![(b"huge", maker.small_records()?)],
        Class::RepeatedNames => vec![(b"huge", maker.repeated_names(good)?)],
        Class::Unsorted => vec![(b"huge", maker.unsorted(good)?)],
        Class::Deep => vec![(b"d", maker.deep()?)],
        Class::SymlinkThenFile => {
            let link = maker.inline(SYMLINK, b"/tmp")?;
            let content = directory_content(&[(b".", good), (b"..", good), (b"below", good)]);
            let directory = maker.inline(DIRECTORY, &content)?;
            vec![(b"name", link), (b"name", directory)]
        }
        Class::TwiceTheName => {
            let other = maker.inline(REGULAR, b"other\n")?;
            vec![(b"name", good), (b"name", other)]
        }
        Class::Bidirectional => {
            let link = maker.inline(SYMLINK, "\u{202e}gpj.exe".as_bytes())?;
            vec![(b"l", link), ("\u{202e}gpj.exe".as_bytes(), good)]
        }
    };
    maker.finish(good, root)
}

/// Bytes of `large` in [`write_large`], more than a single request is allowed to decode.
pub const LARGE: u64 = 9 * DECODED as u64;
/// Bytes of `sparse`.
pub const SPARSE: u64 = 5 << 30;
/// Offset and bytes of the only data in `sparse`.
pub const SPARSE_DATA: (u64, &[u8]) = (3 << 30, b"data");

/// Writes a valid image that exceeds the budget of a request: a file `large` that repeats the
/// alphabet, and a directory `below` with the same file and `sparse`.
pub fn write_large(path: &Path) -> io::Result<()> {
    let mut maker = Maker::new(path)?;
    let good = maker.inline(REGULAR, b"good\n")?;
    let pattern: Vec<u8> = (b'a'..=b'z').cycle().take(26 * 157).collect();
    let large = maker.shared(REGULAR, &pattern, LARGE / DECODED as u64)?;
    let sparse = maker.sparse()?;
    let entries = [
        (&b"."[..], good),
        (b"..", good),
        (b"large", large),
        (b"sparse", sparse),
    ];
    let below = maker.inline(DIRECTORY, &directory_content(&entries))?;
    maker.finish(good, vec![(b"large", large), (b"below", below)])
}

struct Maker {
    file: File,
    /// Offset of the next inode.
    next: u64,
}

impl Maker {
    fn new(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        Ok(Self {
            file,
            next: META + STRIDE,
        })
    }

    fn put(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    /// Writes an inode without content and returns its nid.
    fn inode(&mut self, layout: u16, mode: u16, size: u64, union: u32) -> io::Result<u64> {
        let at = self.next;
        self.put_inode(at, layout, mode, size, union)?;
        self.next += STRIDE;
        Ok((at - META) / 32)
    }

    fn put_inode(&self, at: u64, layout: u16, mode: u16, size: u64, union: u32) -> io::Result<()> {
        let mut inode = [0_u8; INODE as usize];
        inode[..2].copy_from_slice(&(1 | layout << 1).to_le_bytes());
        inode[4..6].copy_from_slice(&mode.to_le_bytes());
        inode[8..16].copy_from_slice(&size.to_le_bytes());
        inode[16..20].copy_from_slice(&union.to_le_bytes());
        inode[44] = 2;
        self.put(at, &inode)
    }

    /// Writes a file whose content follows its inode.
    fn inline(&mut self, mode: u16, content: &[u8]) -> io::Result<u64> {
        let nid = self.inode(2, mode, content.len() as u64, u32::MAX)?;
        self.put(body(nid), content)?;
        Ok(nid)
    }

    /// The chunk table is in a hole of the image file and reads as zeros: every chunk is block 0,
    /// which also holds the superblock.
    fn broken_terabyte(&mut self) -> io::Result<u64> {
        let size: u64 = 1 << 40;
        self.put(0, &directory_block(&[(b"/", 1), (b"//", 1)])[..1024])?;
        self.chunks(DIRECTORY, size, 0)
    }

    /// Chunks of 1 MiB, all but one of which are holes.
    fn sparse(&mut self) -> io::Result<u64> {
        const BITS: u32 = 8;
        let nid = self.chunks(REGULAR, SPARSE, BITS)?;
        let (chunk, bytes) = ((BLOCK as u64) << BITS, SPARSE_DATA);
        let block = self.next / BLOCK as u64;
        for number in 0..SPARSE / chunk {
            let is_data = number == bytes.0 / chunk;
            let entry = if is_data { block as u32 } else { u32::MAX };
            self.put(body(nid) + number * 4, &entry.to_le_bytes())?;
        }
        self.put(self.next, bytes.1)?;
        self.next += chunk;
        Ok(nid)
    }

    fn chunks(&mut self, mode: u16, size: u64, blocks_of_chunk: u32) -> io::Result<u64> {
        let nid = self.inode(4, mode, size, blocks_of_chunk)?;
        let table = (size / BLOCK as u64) >> blocks_of_chunk;
        self.next = (body(nid) + table * 4).next_multiple_of(BLOCK as u64);
        self.file.set_len(self.next)?;
        Ok(nid)
    }

    /// Here too the chunk table reads as zeros: every chunk is the block with the superblock.
    fn repeated_names(&mut self, good: u64) -> io::Result<u64> {
        let names: Vec<String> = (0..40).map(|number| format!("n{number:02}")).collect();
        let entries: Vec<(&[u8], u64)> = names.iter().map(|name| (name.as_bytes(), good)).collect();
        self.put(0, &directory_block(&entries)[..1024])?;
        self.chunks(DIRECTORY, 64 << 30, 0)
    }

    /// A directory of extents that all decode the same pcluster, which repeats `block`.
    fn shared_pcluster(&mut self, block: &[u8]) -> io::Result<u64> {
        self.shared(DIRECTORY, block, SHARING)
    }

    fn shared(&mut self, mode: u16, block: &[u8], extents: u64) -> io::Result<u64> {
        let stored = lz4_repeating(block, DECODED);
        let nid = self.inode(1, mode, extents * DECODED as u64, 0)?;
        // Encoded extents with records of 16 bytes.
        self.header(nid, extents as u32, 1 | 2 << 1)?;
        let records = (body(nid) + HEADER).next_multiple_of(16);
        let at = (records + extents * 16).next_multiple_of(BLOCK as u64);
        for number in 0..extents {
            let length = 1 << 28 | stored.len() as u32;
            let logical = number * DECODED as u64;
            let words = [length, at as u32, 0, logical as u32];
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.put(records + number * 16, &bytes)?;
        }
        self.put(at, &stored)?;
        self.next = (at + stored.len() as u64).next_multiple_of(BLOCK as u64);
        Ok(nid)
    }

    fn header(&self, nid: u64, first: u32, advise: u16) -> io::Result<()> {
        let mut header = [0_u8; HEADER as usize];
        header[..4].copy_from_slice(&first.to_le_bytes());
        header[4..6].copy_from_slice(&advise.to_le_bytes());
        self.put(body(nid), &header)
    }

    /// The records are in a hole of the image file: no extent has bytes, so all extents begin at
    /// the same address.
    fn small_records(&mut self) -> io::Result<u64> {
        let extents: u64 = 1 << 31;
        let nid = self.inode(1, REGULAR, extents * BLOCK as u64, 0)?;
        self.header(nid, 0, 1)?;
        self.next = (body(nid) + 16 + extents * 4).next_multiple_of(BLOCK as u64);
        self.file.set_len(self.next)?;
        Ok(nid)
    }

    fn unsorted(&mut self, good: u64) -> io::Result<u64> {
        let names: Vec<String> = (0..20 * 200)
            .rev()
            .map(|number| format!("{number:05}"))
            .collect();
        let start = self.next.next_multiple_of(BLOCK as u64) + BLOCK as u64;
        let size = 20 * BLOCK as u64;
        let nid = self.inode(0, DIRECTORY, size, (start / BLOCK as u64) as u32)?;
        for (number, names) in names.chunks(200).enumerate() {
            let entries: Vec<(&[u8], u64)> =
                names.iter().map(|name| (name.as_bytes(), good)).collect();
            self.put(start + (number * BLOCK) as u64, &directory_block(&entries))?;
        }
        self.next = start + size;
        Ok(nid)
    }

    fn deep(&mut self) -> io::Result<u64> {
        let name = [b'd'; 250];
        let first = (self.next - META) / 32;
        for level in 0..2500 {
            let here = (self.next - META) / 32;
            let entries: Vec<(&[u8], u64)> = match level {
                2499 => vec![(b".", here), (b"..", here)],
                _ => vec![(b".", here), (b"..", here), (&name, here + STRIDE / 32)],
            };
            self.inline(DIRECTORY, &directory_content(&entries))?;
        }
        Ok(first)
    }

    fn finish(self, good: u64, mut entries: Vec<(&[u8], u64)>) -> io::Result<()> {
        entries.extend([(&b"."[..], 0), (b"..", 0), (b"good", good)]);
        entries.sort_by_key(|(name, _)| name.to_vec());
        let content = directory_content(&entries);
        self.put_inode(META, 2, DIRECTORY, content.len() as u64, u32::MAX)?;
        self.put(META + INODE, &content)?;
        let mut superblock = [0_u8; 256];
        let mut field = |at: usize, bytes: &[u8]| {
            superblock[at..at + bytes.len()].copy_from_slice(bytes);
        };
        field(0, &0xe0f5_e1e2_u32.to_le_bytes());
        field(12, &[12]);
        field(40, &1_u32.to_le_bytes());
        // Padding before LZ4 blocks, and codec configurations for LZ4 only.
        field(80, &3_u32.to_le_bytes());
        field(84, &1_u16.to_le_bytes());
        field(128, &[14, 0, 0, 0, 1, 0]);
        self.put(1024, &superblock)?;
        let end = self.next.max(self.file.metadata()?.len());
        self.file.set_len(end.next_multiple_of(BLOCK as u64))
    }
}

/// Offset of an inode's content or map.
fn body(nid: u64) -> u64 {
    META + nid * 32 + INODE
}

/// Entries and names in the layout of a directory.
fn directory_content(entries: &[(&[u8], u64)]) -> Vec<u8> {
    let (mut table, mut names) = (Vec::new(), Vec::new());
    for (name, nid) in entries {
        let offset = (entries.len() * 12 + names.len()) as u16;
        table.extend(nid.to_le_bytes());
        table.extend(offset.to_le_bytes());
        table.extend([0, 0]);
        names.extend_from_slice(name);
    }
    table.extend(names);
    table
}

fn directory_block(entries: &[(&[u8], u64)]) -> Vec<u8> {
    let mut block = directory_content(entries);
    block.resize(BLOCK, 0);
    block
}

/// An LZ4 block that decodes to `length` bytes of a repeated `pattern`: the pattern, one match that
/// repeats it, and the literals that end every block.
fn lz4_repeating(pattern: &[u8], length: usize) -> Vec<u8> {
    const LAST: usize = 12;
    let matched = length - pattern.len() - LAST;
    let mut out = vec![0xff];
    lz4_length(&mut out, pattern.len() - 15);
    out.extend(pattern);
    out.extend((pattern.len() as u16).to_le_bytes());
    lz4_length(&mut out, matched - 4 - 15);
    out.push((LAST as u8) << 4);
    let end = (pattern.len() + matched) % pattern.len();
    out.extend(pattern.iter().cycle().skip(end).take(LAST));
    out
}

fn lz4_length(out: &mut Vec<u8>, rest: usize) {
    out.extend(std::iter::repeat_n(0xff, rest / 255));
    out.push((rest % 255) as u8);
}
