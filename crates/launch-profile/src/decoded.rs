//! Decoded bytes that launches read, kept so that they need not be decoded again.
//!
//! The file consists of decoded pclusters, or their beginnings, one after the other; an entry for
//! each of them; a checksum for each of their pages, the last of which may be shorter; and this
//! trailer:
//!
//! | offset | bytes | content |
//! | --- | --- | --- |
//! | 0 | 8 | [`MAGIC`] |
//! | 8 | 2 | [`VERSION`] |
//! | 10 | 2 | 0 |
//! | 12 | 4 | bytes of entries and checksums |
//! | 16 | 4 | number of entries |
//! | 20 | 8 | seed of the keys |
//! | 28 | 52 | the image, as in [what was learned](mod@crate::learned) |
//! | 80 | 8 | checksum of entries, page checksums and the trailer before it |
//!
//! An entry is a key (16 bytes), which is a hash of the stored bytes, and the number of decoded
//! bytes (8 bytes). Numbers are little-endian; checksums are XXH3 (64 bits). With the index at its
//! end, the file can be written sequentially. The checksums reveal anything missing or damaged.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use twox_hash::XxHash3_64;

use crate::identity::ImageIdentity;
use crate::numbers::{u32_at, u64_at};
use crate::profile::PAGE;

/// The first bytes of the trailer.
pub const MAGIC: [u8; 8] = *b"ERODECOD";

/// The version that is written, and the only one that is read.
pub const VERSION: u16 = 2;

/// Length of the trailer in bytes.
const END_BYTES: usize = 88;

const CHECKSUM_AT: usize = 80;

const ENTRY_BYTES: usize = 24;

/// Maximum size of entries and checksums in bytes: enough for about 8 GiB of decoded bytes.
const INDEX_BYTES: usize = 16 << 20;

/// Maximum size of a decoded pcluster in bytes, far more than the format allows.
const LONGEST: u64 = 1 << 30;

/// The beginning of a decoded pcluster.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    length: u64,
    /// Index of the first of its page checksums.
    page: usize,
}

/// A file of decoded bytes.
#[derive(Debug)]
pub struct Decoded {
    file: File,
    /// Length of the file in bytes.
    pub length: u64,
    /// The seed of the hashes of stored bytes.
    pub seed: u64,
    /// The image that the file was written for.
    pub image: ImageIdentity,
    entries: HashMap<u128, Entry>,
    checksums: Vec<u64>,
    read_bytes: AtomicU64,
    missed_bytes: AtomicU64,
    damaged: AtomicBool,
}

impl Decoded {
    /// Reads the index of a file, without the decoded bytes themselves.
    ///
    /// # Errors
    /// The file does not contain decoded bytes, is damaged, or cannot be read.
    pub fn open(file: File) -> io::Result<Self> {
        let whole = file.metadata()?.len();
        let (end, last) = part(&file, whole, END_BYTES)?;
        if !last.starts_with(&MAGIC) {
            return Err(invalid("this is no file of decoded bytes"));
        }
        let version = u16::from_le_bytes([last[8], last[9]]);
        if version != VERSION {
            return Err(invalid("decoded bytes in another version of the format"));
        }
        let length = u32_at(&last, 12) as usize;
        if length > INDEX_BYTES {
            return Err(invalid("decoded bytes with too large an index"));
        }
        let (end, index) = part(&file, end, length)?;
        if checksum(&index, &last) != u64_at(&last, CHECKSUM_AT) {
            return Err(invalid("decoded bytes whose index is damaged"));
        }
        let split = index.split_at_checked(u32_at(&last, 16) as usize * ENTRY_BYTES);
        let (listed, checksums) = split.ok_or_else(short)?;
        let (entries, bytes) = entries(listed);
        if bytes != end {
            return Err(short());
        }
        let checksums = checksums.chunks_exact(8).map(|one| u64_at(one, 0));
        Ok(Self {
            file,
            length: whole,
            seed: u64_at(&last, 20),
            image: ImageIdentity::from_bytes(&last[28..]),
            entries,
            checksums: checksums.collect(),
            read_bytes: AtomicU64::new(0),
            missed_bytes: AtomicU64::new(0),
            damaged: AtomicBool::new(false),
        })
    }

    /// Fills `out` with the beginning of the bytes that have this key; returns false if they are
    /// missing or damaged. `counts` says whether [`bytes`](Self::bytes) counts this read.
    pub fn read(&self, key: u128, out: &mut [u8], counts: bool) -> bool {
        let length = out.len() as u64;
        let found = self.entries.get(&key).filter(|it| length <= it.length);
        let read = found.is_some_and(|found| self.fill(*found, out).is_some());
        let bytes = match read {
            true => &self.read_bytes,
            false => &self.missed_bytes,
        };
        bytes.fetch_add(length * u64::from(counts), Ordering::Relaxed);
        if found.is_some() && !read {
            self.damaged.store(true, Ordering::Relaxed);
        }
        read
    }

    /// Number of bytes that were [read](Self::read), and number of bytes that were missing or
    /// damaged.
    pub fn bytes(&self) -> (u64, u64) {
        let load = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
        (load(&self.read_bytes), load(&self.missed_bytes))
    }

    /// Whether a [read](Self::read) has found damaged bytes.
    pub fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    fn fill(&self, entry: Entry, out: &mut [u8]) -> Option<()> {
        let checksums = self.checksums.get(entry.page..)?;
        // The checksum of a page covers all of it, even if only a part is wanted.
        let whole = match out.len() as u64 == entry.length {
            true => out.len(),
            false => out.len() - out.len() % PAGE as usize,
        };
        let (pages, rest) = out.split_at_mut(whole);
        self.file.read_exact_at(pages, entry.at).ok()?;
        let mut sums = checksums.iter();
        let mut is_sound = |page: &[u8]| sums.next() == Some(&XxHash3_64::oneshot(page));
        if !pages.chunks(PAGE as usize).all(&mut is_sound) {
            return None;
        }
        if rest.is_empty() {
            return Some(());
        }
        let mut page = [0; PAGE as usize];
        let length = (entry.length - whole as u64).min(PAGE) as usize;
        let page = &mut page[..length];
        self.file
            .read_exact_at(page, entry.at + whole as u64)
            .ok()?;
        rest.copy_from_slice(&page[..rest.len()]);
        is_sound(page).then_some(())
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn short() -> io::Error {
    invalid("decoded bytes whose file is truncated or has trailing bytes")
}

/// The last `length` bytes before `end`, and the offset where they begin.
fn part(file: &File, end: u64, length: usize) -> io::Result<(u64, Vec<u8>)> {
    let begin = end.checked_sub(length as u64).ok_or_else(short)?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, begin)?;
    Ok((begin, bytes))
}

fn checksum(index: &[u8], last: &[u8]) -> u64 {
    XxHash3_64::oneshot(&[index, &last[..CHECKSUM_AT]].concat())
}

/// The longest entry of each key, and the total length of all entries' bytes.
fn entries(listed: &[u8]) -> (HashMap<u128, Entry>, u64) {
    let (mut at, mut page) = (0_u64, 0_usize);
    let mut entries: HashMap<u128, Entry> = HashMap::new();
    for entry in listed.chunks_exact(ENTRY_BYTES) {
        let key = u128::from_le_bytes(std::array::from_fn(|i| entry[i]));
        let length = u64_at(entry, 16).min(LONGEST);
        let new = Entry { at, length, page };
        let known = entries.entry(key).or_insert(new);
        if known.length < length {
            *known = new;
        }
        at += length;
        page += length.div_ceil(PAGE) as usize;
    }
    (entries, at)
}

/// Entries and checksums of a file that is written sequentially.
#[derive(Debug, Default)]
pub struct DecodedIndex {
    entries: Vec<u8>,
    checksums: Vec<u8>,
}

impl DecodedIndex {
    /// Adds an entry for this key, whose bytes are written next; returns false if there is no room
    /// for it.
    pub fn add(&mut self, key: u128, decoded: &[u8]) -> bool {
        let more = Self::bytes_of(decoded.len()) as usize - decoded.len();
        let fits = self.entries.len() + self.checksums.len() + more <= INDEX_BYTES;
        if fits {
            self.entries.extend(key.to_le_bytes());
            self.entries.extend((decoded.len() as u64).to_le_bytes());
            let pages = decoded.chunks(PAGE as usize);
            let checksums = pages.map(|page| XxHash3_64::oneshot(page).to_le_bytes());
            self.checksums.extend(checksums.flatten());
        }
        fits
    }

    /// Number of bytes that `decoded` decoded bytes take up in the file.
    pub fn bytes_of(decoded: usize) -> u64 {
        let checksums = 8 * decoded.div_ceil(PAGE as usize);
        (decoded + ENTRY_BYTES + checksums) as u64
    }

    /// The part of the file after the decoded bytes.
    pub fn into_bytes(self, seed: u64, image: ImageIdentity) -> Vec<u8> {
        let count = (self.entries.len() / ENTRY_BYTES) as u32;
        let mut bytes = [self.entries, self.checksums].concat();
        let mut last = [0; END_BYTES];
        last[..8].copy_from_slice(&MAGIC);
        last[8..10].copy_from_slice(&VERSION.to_le_bytes());
        last[12..16].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        last[16..20].copy_from_slice(&count.to_le_bytes());
        last[20..28].copy_from_slice(&seed.to_le_bytes());
        last[28..CHECKSUM_AT].copy_from_slice(&image.to_bytes());
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

    /// Keys and lengths. The first key occurs again with more bytes.
    const PARTS: [(u128, usize); 4] = [(7, 4096), (1 << 100, 5000), (9, 131_072), (7, 8195)];

    fn written(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn content(key: u128, length: usize) -> Vec<u8> {
        (0..length)
            .map(|at| (key as usize + at / 1000) as u8)
            .collect()
    }

    fn example() -> Vec<u8> {
        let (mut index, mut bytes) = (DecodedIndex::default(), Vec::new());
        for (key, length) in PARTS {
            let decoded = content(key, length);
            assert!(index.add(key, &decoded));
            bytes.extend(decoded);
        }
        bytes.extend(index.into_bytes(77, ImageIdentity::default()));
        bytes
    }

    #[test]
    fn each_beginning_of_what_is_kept_is_read() {
        let decoded = Decoded::open(written(&example())).unwrap();
        let beginnings = [(7, 1), (7, 4096), (7, 5000), (9, 131_071), (1 << 100, 4096)];
        for (key, length) in PARTS.into_iter().chain(beginnings) {
            let mut out = vec![0; length];
            assert!(decoded.read(key, &mut out, true), "{key} {length}");
            assert_eq!(out, content(key, length), "{key} {length}");
        }
        let read = decoded.bytes().0;
        for (key, length) in [(8, 4096), (7, 8196)] {
            assert!(!decoded.read(key, &mut vec![0; length], true), "{key}");
            assert!(!decoded.read(key, &mut vec![0; length], false), "{key}");
        }
        assert_eq!(decoded.bytes(), (read, 4096 + 8196));
        assert!(!decoded.is_damaged());
        assert_eq!(
            (decoded.seed, decoded.image),
            (77, ImageIdentity::default())
        );
    }

    #[test]
    fn damage_is_noticed_wherever_it_is() {
        let bytes = example();
        let content: usize = PARTS.iter().map(|part| part.1).sum();
        for at in (content..bytes.len()).chain([4096, 10_000, content - 1]) {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            let reads = Decoded::open(written(&changed)).is_ok_and(|decoded| {
                let read = |part: &(u128, usize)| decoded.read(part.0, &mut vec![0; part.1], true);
                let all = PARTS.iter().all(read);
                assert_ne!(all, decoded.is_damaged(), "byte {at}");
                all
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
    fn a_file_without_entries_has_nothing() {
        let empty = DecodedIndex::default().into_bytes(0, ImageIdentity::default());
        let decoded = Decoded::open(written(&empty)).unwrap();
        assert!(!decoded.read(7, &mut [0], true));
    }
}
