//! Decoded bytes of what launches read, kept so that they need not be decoded again.
//!
//! The file has the bytes of each stretch, one behind the other; then an entry for each stretch;
//! then a checksum for each of their pages, the last of which may be shorter; then:
//!
//! | offset | bytes | what |
//! | --- | --- | --- |
//! | 0 | 8 | [`MAGIC`] |
//! | 8 | 2 | [`VERSION`] |
//! | 10 | 2 | 0 |
//! | 12 | 4 | bytes of entries and checksums |
//! | 16 | 4 | stretches |
//! | 20 | 44 | the image, as in a [profile](mod@crate::format) |
//! | 64 | 8 | checksum of entries, checksums, and what stands before it here |
//!
//! An entry is the number of the file's inode (8), the offset there (8) and bytes (8). Numbers are
//! little endian, checksums are XXH3 (64 bits). So the file is written from its beginning to its
//! end, and whatever is missing or damaged is noticed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use twox_hash::XxHash3_64;

use crate::error::Error;
use crate::identity::ImageIdentity;
use crate::profile::PAGE;

/// First bytes behind entries and checksums.
pub const MAGIC: [u8; 8] = *b"ERODECOD";

/// The version that is written, and the only one that is read.
pub const VERSION: u16 = 1;

/// Bytes behind entries and checksums.
const END_BYTES: usize = 72;

const CHECKSUM_AT: usize = 64;

const ENTRY_BYTES: usize = 24;

/// Bytes of entries and checksums at most: 8 GiB of stretches.
const INDEX_BYTES: usize = 16 << 20;

/// Bytes of one file that are one behind the other here.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    at: u64,
    length: u64,
    /// Place of its first checksum.
    page: usize,
}

/// A file of decoded bytes.
#[derive(Debug)]
pub struct Decoded {
    file: File,
    /// The image that they are of.
    pub image: ImageIdentity,
    /// By inode number and offset.
    stretches: BTreeMap<(u64, u64), Stretch>,
    checksums: Vec<u64>,
    read_bytes: AtomicU64,
    damaged: AtomicBool,
}

impl Decoded {
    /// Reads what the file has, without the bytes themselves.
    ///
    /// # Errors
    /// When it is none, is damaged, or cannot be read.
    pub fn open(file: File) -> io::Result<Self> {
        let (end, last) = part(&file, file.metadata()?.len(), END_BYTES)?;
        if !last.starts_with(&MAGIC) {
            return Err(invalid(Error::Magic));
        }
        let version = u16::from_le_bytes([last[8], last[9]]);
        if version != VERSION {
            return Err(invalid(Error::Version(version)));
        }
        let length = u32_at(&last, 12) as usize;
        if length > INDEX_BYTES {
            let limit = INDEX_BYTES;
            return Err(invalid(Error::TooLarge {
                have: length,
                limit,
            }));
        }
        let (end, index) = part(&file, end, length)?;
        let (have, want) = (checksum(&index, &last), u64_at(&last, CHECKSUM_AT));
        if have != want {
            return Err(invalid(Error::Checksum { have, want }));
        }
        let mut image = [0; ImageIdentity::BYTES];
        image.copy_from_slice(&last[20..CHECKSUM_AT]);
        let entries = u32_at(&last, 16) as usize * ENTRY_BYTES;
        let entries = index.split_at_checked(entries);
        let (entries, checksums) = entries.ok_or_else(|| short(length, length))?;
        let checksums = checksums.chunks_exact(8).map(|one| u64_at(one, 0));
        let this = Self {
            file,
            image: ImageIdentity::from_bytes(&image),
            stretches: stretches(entries),
            checksums: checksums.collect(),
            read_bytes: AtomicU64::new(0),
            damaged: AtomicBool::new(false),
        };
        let bytes = this.stretches.values().map(|it| it.at + it.length).max();
        match bytes.unwrap_or(0) == end {
            true => Ok(this),
            false => Err(short(end as usize, bytes.unwrap_or(0) as usize)),
        }
    }

    /// Whether it has these bytes of a file.
    pub fn has(&self, nid: u64, offset: u64, length: usize) -> bool {
        self.parts(nid, offset, length).is_some()
    }

    /// Fills `out` from `offset` of a file, the beginning of a page, to the end of one or that of
    /// the file. False if bytes are not there or are damaged.
    pub fn read(&self, nid: u64, offset: u64, out: &mut [u8]) -> bool {
        let Some(parts) = self.parts(nid, offset, out.len()) else {
            return false;
        };
        let (length, mut rest) = (out.len() as u64, out);
        let read = parts.into_iter().all(|part| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(part.length as usize);
            rest = later;
            self.file.read_exact_at(now, part.at).is_ok() && self.is_sound(part.page, now)
        });
        match read {
            true => drop(self.read_bytes.fetch_add(length, Ordering::Relaxed)),
            false => self.damaged.store(true, Ordering::Relaxed),
        }
        read
    }

    /// Whether bytes that were to be [read](Self::read) were damaged.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// How many bytes were [read](Self::read).
    pub fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    fn is_sound(&self, page: usize, bytes: &[u8]) -> bool {
        let checksums = self.checksums.get(page..).unwrap_or_default();
        let pages = bytes.chunks(PAGE as usize);
        pages.len() <= checksums.len()
            && pages
                .zip(checksums)
                .all(|(page, sum)| XxHash3_64::oneshot(page) == *sum)
    }

    /// Where these bytes are, in their order.
    fn parts(&self, nid: u64, offset: u64, length: usize) -> Option<Vec<Stretch>> {
        let (mut parts, mut at) = (Vec::new(), offset);
        let end = offset.checked_add(length as u64)?;
        while at < end {
            let (key, found) = self.stretches.range(..=(nid, at)).next_back()?;
            let inside = at.checked_sub(key.1).filter(|_| key.0 == nid)?;
            let has = found.length.checked_sub(inside).filter(|&has| has > 0)?;
            let length = has.min(end - at);
            // A checksum is of a whole page, or of the last part of a file.
            if inside % PAGE != 0 || length % PAGE != 0 && length != has {
                return None;
            }
            parts.push(Stretch {
                at: found.at + inside,
                length,
                page: found.page + (inside / PAGE) as usize,
            });
            at += length;
        }
        Some(parts)
    }
}

fn invalid(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn short(have: usize, want: usize) -> io::Error {
    invalid(Error::Length { have, want })
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

/// The last `length` bytes before `end`, and where they begin.
fn part(file: &File, end: u64, length: usize) -> io::Result<(u64, Vec<u8>)> {
    let begin = end.checked_sub(length as u64);
    let begin = begin.ok_or_else(|| short(end as usize, length))?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, begin)?;
    Ok((begin, bytes))
}

fn checksum(index: &[u8], last: &[u8]) -> u64 {
    XxHash3_64::oneshot(&[index, &last[..CHECKSUM_AT]].concat())
}

fn stretches(entries: &[u8]) -> BTreeMap<(u64, u64), Stretch> {
    let (mut at, mut page) = (0_u64, 0_usize);
    let each = entries.chunks_exact(ENTRY_BYTES).map(|entry| {
        let length = u64_at(entry, 16).min(1 << 40);
        let stretch = Stretch { at, length, page };
        at = at.saturating_add(length);
        page = page.saturating_add(length.div_ceil(PAGE) as usize);
        ((u64_at(entry, 0), u64_at(entry, 8)), stretch)
    });
    each.collect()
}

/// Entries and checksums of a file that is written from its beginning to its end.
#[derive(Debug, Default)]
pub struct DecodedIndex {
    entries: Vec<u8>,
    checksums: Vec<u8>,
}

impl DecodedIndex {
    /// Adds a stretch, whose bytes are written next; false without room for it. No other has bytes
    /// of it, and it begins with a page.
    pub fn add(&mut self, nid: u64, offset: u64, bytes: &[u8]) -> bool {
        let pages = bytes.chunks(PAGE as usize);
        let more = ENTRY_BYTES + 8 * pages.len();
        let fits = self.entries.len() + self.checksums.len() + more <= INDEX_BYTES;
        if fits {
            for number in [nid, offset, bytes.len() as u64] {
                self.entries.extend(number.to_le_bytes());
            }
            let checksums = pages.map(|page| XxHash3_64::oneshot(page).to_le_bytes());
            self.checksums.extend(checksums.flatten());
        }
        fits
    }

    /// What comes behind the bytes.
    pub fn into_bytes(self, image: ImageIdentity) -> Vec<u8> {
        let count = (self.entries.len() / ENTRY_BYTES) as u32;
        let mut bytes = [self.entries, self.checksums].concat();
        let mut last = [0; END_BYTES];
        last[..8].copy_from_slice(&MAGIC);
        last[8..10].copy_from_slice(&VERSION.to_le_bytes());
        last[12..16].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        last[16..20].copy_from_slice(&count.to_le_bytes());
        last[20..CHECKSUM_AT].copy_from_slice(&image.to_bytes());
        let checksum = checksum(&bytes, &last);
        last[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        bytes.extend(last);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const PARTS: [(u64, u64, usize); 4] = [
        (7, 8192, 4096),
        (7, 0, 8192),
        (7, 1 << 40, 4101),
        (9, 8192, 131_072),
    ];

    fn written(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn content(nid: u64, offset: u64, length: usize) -> Vec<u8> {
        let range = offset..offset + length as u64;
        range.map(|at| (nid + at / 1000) as u8).collect()
    }

    fn example() -> Vec<u8> {
        let (mut index, mut bytes) = (DecodedIndex::default(), Vec::new());
        for (nid, offset, length) in PARTS {
            let stretch = content(nid, offset, length);
            assert!(index.add(nid, offset, &stretch));
            bytes.extend(stretch);
        }
        bytes.extend(index.into_bytes(ImageIdentity::default()));
        bytes
    }

    #[test]
    fn pages_are_read_wherever_they_begin() {
        let decoded = Decoded::open(written(&example())).unwrap();
        for (nid, offset, length) in [(7, 0, 12_288), (7, 4096, 8192), (7, (1 << 40) + 4096, 5)]
            .into_iter()
            .chain(PARTS)
        {
            let mut out = vec![0; length];
            assert!(decoded.has(nid, offset, length) && decoded.read(nid, offset, &mut out));
            assert_eq!(out, content(nid, offset, length), "{nid} {offset}");
        }
        for (nid, offset, length) in [(8, 0, 4096), (7, 8192, 8192), (7, 1, 100), (7, 0, 100)] {
            assert!(
                !decoded.read(nid, offset, &mut vec![0; length]),
                "{nid} {offset} {length}"
            );
        }
        assert_eq!(decoded.image, ImageIdentity::default());
    }

    #[test]
    fn damage_is_noticed_wherever_it_is() {
        let bytes = example();
        let content: usize = PARTS.iter().map(|part| part.2).sum();
        for at in (content..bytes.len()).chain([0, 4096, content - 1]) {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let reads = Decoded::open(written(&changed)).is_ok_and(|decoded| {
                let read =
                    |part: &(u64, u64, usize)| decoded.read(part.0, part.1, &mut vec![0; part.2]);
                PARTS.iter().all(read)
            });
            assert!(!reads, "byte {at}");
        }
        for length in [0, 10, END_BYTES, bytes.len() - 1] {
            assert!(
                Decoded::open(written(&bytes[..length])).is_err(),
                "{length}"
            );
        }
        assert!(Decoded::open(written(&bytes[1..])).is_err(), "cut in front");
    }

    #[test]
    fn a_file_without_stretches_has_nothing() {
        let empty = DecodedIndex::default().into_bytes(ImageIdentity::default());
        let decoded = Decoded::open(written(&empty)).unwrap();
        assert!(!decoded.has(7, 0, 1));
    }
}
