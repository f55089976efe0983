//! The ranges of an ELF file that a dynamic loader reads before the program begins: relocations,
//! the data that they change, symbols with their names.
//!
//! The facts are those of the gABI, chapters 4 (header) and 5 (program header, dynamic section).
//! Nothing in the file is trusted: what contradicts itself has no ranges.

use std::ops::Range;

const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const DYNAMIC_ENTRY: usize = 16;

/// More program headers, and more entries of a dynamic section, than linkers write.
const MOST_PROGRAM_HEADERS: usize = 64;
const MOST_DYNAMIC_ENTRIES: usize = 512;

/// Bytes of a file that are read ahead for the loader at most.
const MOST_BYTES: u64 = 16 << 20;

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PF_W: u64 = 2;

const DT_PLTRELSZ: u64 = 2;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_STRSZ: u64 = 10;
const DT_JMPREL: u64 = 23;
const DT_RELRSZ: u64 = 35;
const DT_RELR: u64 = 36;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

/// Reads bytes at an offset of the file; `None` if they are not there.
pub(super) type ReadAt<'r> = dyn FnMut(u64, &mut [u8]) -> Option<()> + 'r;

/// A segment that is mapped.
struct Load {
    address: u64,
    offset: u64,
    bytes: u64,
    is_writable: bool,
}

/// Whether a file of which these are the first bytes may have such ranges: ELF, 64 bits, little
/// endian.
pub(in super::super) fn is_elf(first: &[u8]) -> bool {
    first.starts_with(b"\x7fELF\x02\x01")
}

/// What a loader reads of a file.
#[derive(Debug)]
pub(super) struct LoaderRanges {
    /// Where the dynamic section begins.
    pub(super) dynamic: u64,
    /// In the order of their use; none is empty.
    pub(super) ranges: Vec<Range<u64>>,
}

/// What is read of a file of `size` bytes; `None` where it is no such file, or linked statically.
pub(super) fn loader_ranges(size: u64, read: &mut ReadAt<'_>) -> Option<LoaderRanges> {
    let mut left = MOST_BYTES;
    let mut found = all_ranges(read)?;
    for range in &mut found.ranges {
        range.end = range.end.min(size).min(range.start.saturating_add(left));
        left -= range.end.saturating_sub(range.start);
    }
    found.ranges.retain(|range| !range.is_empty());
    Some(found)
}

fn all_ranges(read: &mut ReadAt<'_>) -> Option<LoaderRanges> {
    let mut header = [0; HEADER];
    read(0, &mut header)?;
    let count = usize::from(u16::from_le_bytes(array(&header, 56)?));
    let size = usize::from(u16::from_le_bytes(array(&header, 54)?));
    if !is_elf(&header) || size != PROGRAM_HEADER || count > MOST_PROGRAM_HEADERS {
        return None;
    }
    let mut table = vec![0; count * PROGRAM_HEADER];
    read(word(&header, 32)?, &mut table)?;
    let (mut loads, mut dynamic) = (Vec::new(), None);
    for entry in table.chunks_exact(PROGRAM_HEADER) {
        // Type and flags.
        let first = word(entry, 0)?;
        let load = Load {
            offset: word(entry, 8)?,
            address: word(entry, 16)?,
            bytes: word(entry, 32)?,
            is_writable: first >> 32 & PF_W != 0,
        };
        match first & 0xffff_ffff {
            PT_LOAD => loads.push(load),
            PT_DYNAMIC => dynamic = Some(load),
            _ => {}
        }
    }
    let dynamic = dynamic?;
    let mut ranges = tables(&dynamic, &loads, read)?;
    let writable = loads.iter().filter(|load| load.is_writable);
    let writable = writable.map(|load| load.offset..load.offset.saturating_add(load.bytes));
    let symbols = ranges.split_off(3);
    Some(LoaderRanges {
        dynamic: dynamic.offset,
        ranges: ranges.into_iter().chain(writable).chain(symbols).collect(),
    })
}

/// Three ranges of relocations, and one from the first of the tables of symbols to their names.
fn tables(dynamic: &Load, loads: &[Load], read: &mut ReadAt<'_>) -> Option<Vec<Range<u64>>> {
    let entries = usize::try_from(dynamic.bytes).ok()? / DYNAMIC_ENTRY;
    let mut section = vec![0; entries.min(MOST_DYNAMIC_ENTRIES) * DYNAMIC_ENTRY];
    read(dynamic.offset, &mut section)?;
    let value = |tag| {
        let mut entries = section.chunks_exact(DYNAMIC_ENTRY);
        word(entries.find(|entry| word(entry, 0) == Some(tag))?, 8)
    };
    let offset = |tag| {
        let address = value(tag)?;
        let holds = |load: &&Load| {
            (load.address..load.address.saturating_add(load.bytes)).contains(&address)
        };
        let load = loads.iter().find(holds)?;
        load.offset.checked_add(address - load.address)
    };
    let range = |start, bytes| {
        let start = offset(start)?;
        Some(start..start.saturating_add(value(bytes)?))
    };
    let none = 0..0;
    let relocations = [
        (DT_RELR, DT_RELRSZ),
        (DT_RELA, DT_RELASZ),
        (DT_JMPREL, DT_PLTRELSZ),
    ];
    let relocations = relocations.map(|(start, bytes)| range(start, bytes).unwrap_or(none.clone()));
    let names = range(DT_STRTAB, DT_STRSZ).unwrap_or(none);
    let symbols = [DT_SYMTAB, DT_GNU_HASH].into_iter().filter_map(offset);
    let first = symbols.min().unwrap_or(names.start).min(names.start);
    let mut tables = relocations.to_vec();
    tables.push(first..names.end);
    Some(tables)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_le_bytes)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(file: &[u8]) -> Vec<Range<u64>> {
        let found = loader_ranges(file.len() as u64, &mut |offset, out| {
            let from = usize::try_from(offset).ok()?;
            out.copy_from_slice(file.get(from..from.checked_add(out.len())?)?);
            Some(())
        });
        found.map_or(Vec::new(), |found| found.ranges)
    }

    fn put(file: &mut [u8], at: usize, words: &[u64]) {
        for (number, word) in words.iter().enumerate() {
            file[at + number * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Two segments, of which the second is writable and has the dynamic section.
    fn library() -> Vec<u8> {
        let mut file = vec![0; 0x4000];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        put(&mut file, 32, &[0x40]);
        file[54..58].copy_from_slice(&[PROGRAM_HEADER as u8, 0, 3, 0]);
        put(&mut file, 0x40, &[PT_LOAD, 0, 0, 0, 0x2000, 0x2000, 0]);
        let writable = PT_LOAD | PF_W << 32;
        put(
            &mut file,
            0x78,
            &[writable, 0x2000, 0x3000, 0, 0x1800, 0x1900, 0],
        );
        put(
            &mut file,
            0xb0,
            &[PT_DYNAMIC, 0x2100, 0x3100, 0, 0x100, 0x100, 0],
        );
        let entries = [
            [DT_GNU_HASH, 0x300],
            [DT_SYMTAB, 0x400],
            [DT_STRTAB, 0x800],
            [DT_STRSZ, 0x100],
            [DT_RELA, 0x1000],
            [DT_RELASZ, 0x600],
            [DT_JMPREL, 0x1600],
            [DT_PLTRELSZ, 0x60],
        ];
        put(&mut file, 0x2100, entries.as_flattened());
        file
    }

    #[test]
    fn relocations_come_first_and_symbols_last() {
        let expected = [0x1000..0x1600, 0x1600..0x1660, 0x2000..0x3800, 0x300..0x900];
        assert_eq!(ranges(&library()), expected);
    }

    #[test]
    fn a_static_program_has_none() {
        let mut file = library();
        put(&mut file, 0xb0, &[0]);
        assert!(ranges(&file).is_empty());
    }

    /// Every byte of the headers has every kind of wrong value, one and two at a time.
    #[test]
    fn whatever_a_file_says_its_ranges_are_inside_of_it_and_bounded() {
        let good = library();
        let mut random = 1_u64;
        let mut next = |below: usize| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) as usize % below
        };
        for round in 0..50_000 {
            let mut file = good.clone();
            for _ in 0..1 + round % 3 {
                let at = [next(0xe8), 0x2100 + next(0x80)][next(2)];
                file[at] = [0, 1, 0x7f, 0x80, 0xff, next(256) as u8][next(6)];
            }
            file.truncate(if round % 16 == 0 {
                next(0x4000)
            } else {
                0x4000
            });
            let found = ranges(&file);
            assert!(found.len() <= 4 + MOST_PROGRAM_HEADERS);
            assert!(found.iter().all(|range| range.start < range.end));
            assert!(found.iter().all(|range| range.end <= file.len() as u64));
        }
        let mut sum = ranges_of_a_large_file();
        assert_eq!(sum.pop(), Some(MOST_BYTES));
    }

    fn ranges_of_a_large_file() -> Vec<u64> {
        let mut file = library();
        put(&mut file, 0x78 + 32, &[1 << 40]);
        let mut read = |offset: u64, out: &mut [u8]| {
            out.copy_from_slice(&file[offset as usize..][..out.len()]);
            Some(())
        };
        let found = loader_ranges(1 << 41, &mut read).unwrap();
        vec![
            found
                .ranges
                .iter()
                .map(|range| range.end - range.start)
                .sum(),
        ]
    }
}
