//! Pages of the kernel's ring buffer.
//!
//! A page begins with a time stamp and the number of bytes in use, followed by entries. Each entry
//! begins with a word that holds a type (5 bits) and a time delta (27 bits). Types 1 to 28 are
//! records of that many words, 0 is a record whose length is in the next word, 29 padding, 30 a
//! time extension, and 31 an absolute time. The kernel describes this layout in
//! `events/header_page` and `events/header_event`.

use super::format::PageLayout;

/// Flag in the commit word, above the bits of the length: events were lost before this page, and
/// the page ends with their number.
const MISSED_EVENTS: u64 = 1 << 31;
const MISSED_STORED: u64 = 1 << 30;
const LENGTH: u64 = MISSED_STORED - 1;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// Result of reading a page: the number of records, and of events lost before the page.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct PageSummary {
    /// Events lost just before the page; at least 1 if the kernel did not count them.
    pub lost: u64,
    /// Records passed to the caller.
    pub records: u64,
}

/// Passes each record of a page, with its time, to `each`. Errors say what is wrong with the page.
pub(crate) fn records(
    page: &[u8],
    layout: &PageLayout,
    mut each: impl FnMut(u64, &[u8]),
) -> Result<PageSummary, &'static str> {
    let mut time = word64(page, 0).ok_or("a page shorter than its header")?;
    let commit = match layout.commit_size {
        4 => word32(page, 8).map(u64::from),
        _ => word64(page, 8),
    };
    let commit = commit.ok_or("a page shorter than its header")?;
    let end = layout.data + (commit & LENGTH) as usize;
    let data = page
        .get(..end)
        .ok_or("a page that claims more bytes than it has")?;
    let mut summary = PageSummary {
        lost: lost(page, commit, end),
        records: 0,
    };
    let mut at = layout.data;
    while at + 4 <= end {
        let entry = word32(data, at).ok_or("a truncated entry")?;
        let (kind, delta) = (entry & 31, u64::from(entry >> 5));
        at += 4;
        let next = || word32(data, at).ok_or("a truncated entry");
        match kind {
            PADDING if delta == 0 => break,
            PADDING => {
                time = time.wrapping_add(delta);
                at = at
                    .checked_add(next()? as usize)
                    .ok_or("padding of impossible length")?;
            }
            TIME_EXTEND => {
                time = time.wrapping_add((u64::from(next()?) << 27) + delta);
                at += 4;
            }
            TIME_STAMP => {
                // The entry has 59 bits of the time; the rest comes from the previous time.
                time = (u64::from(next()?) << 27 | delta) | (time & 0xf8 << 56);
                at += 4;
            }
            _ => {
                time = time.wrapping_add(delta);
                let (start, length) = match kind {
                    0 => (
                        at + 4,
                        (next()? as usize).checked_sub(4).ok_or("an empty record")?,
                    ),
                    words => (at, words as usize * 4),
                };
                let record = data.get(start..start.saturating_add(length));
                each(time, record.ok_or("a record longer than its page")?);
                summary.records += 1;
                // Lengths are in bytes; entries are aligned to words.
                at = start + length.next_multiple_of(4);
            }
        }
    }
    Ok(summary)
}

fn lost(page: &[u8], commit: u64, end: usize) -> u64 {
    if commit & MISSED_EVENTS == 0 {
        return 0;
    }
    let stored = (commit & MISSED_STORED != 0)
        .then(|| word64(page, end))
        .flatten();
    stored.unwrap_or(1).max(1)
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: PageLayout = PageLayout::USUAL;

    fn page(commit_flags: u64, words: &[u32]) -> Vec<u8> {
        let mut page = Vec::new();
        page.extend(1_000u64.to_le_bytes());
        page.extend((commit_flags | (words.len() as u64 * 4)).to_le_bytes());
        page.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        page.resize(4096, 0);
        page
    }

    fn entry(kind: u32, delta: u32) -> u32 {
        kind | delta << 5
    }

    fn read(page: &[u8]) -> (Vec<(u64, Vec<u8>)>, PageSummary) {
        let mut found = Vec::new();
        let summary = records(page, &LAYOUT, |time, record| {
            found.push((time, record.to_vec()))
        });
        (found, summary.unwrap())
    }

    #[test]
    fn times_add_up_and_extensions_and_stamps_are_followed() {
        let extended = [entry(TIME_EXTEND, 1), 1, entry(0, 2), 8, 0xbbbb_bbbb];
        let padded = [entry(PADDING, 3), 8, 0];
        let stamped = [entry(TIME_STAMP, 7), 2, entry(2, 1), 1, 2];
        let first = [entry(1, 5), 0xaaaa_aaaa];
        let page = page(0, &[&first[..], &extended, &padded, &stamped].concat());
        let (found, summary) = read(&page);
        let times: Vec<u64> = found.iter().map(|(time, _)| *time).collect();
        assert_eq!(times, [1005, 1005 + (1 << 27) + 1 + 2, (2 << 27) + 7 + 1]);
        assert_eq!(found[1].1, [0xbb; 4]);
        assert_eq!(found[2].1.len(), 8);
        assert_eq!((summary.lost, summary.records), (0, 3));
    }

    #[test]
    fn lost_events_are_counted_and_at_least_told() {
        let mut counted = page(MISSED_EVENTS | MISSED_STORED, &[entry(1, 0), 0]);
        counted[24..32].copy_from_slice(&77u64.to_le_bytes());
        assert_eq!(read(&counted).1.lost, 77);
        assert_eq!(read(&page(MISSED_EVENTS, &[entry(1, 0), 0])).1.lost, 1);
    }

    #[test]
    fn a_broken_page_is_an_error_and_never_a_panic() {
        let none = |_, _: &[u8]| {};
        let broken = |page: &[u8]| records(page, &LAYOUT, none).is_err();
        assert!(broken(&[0; 10]) && broken(&page(5000, &[])));
        for words in [
            &[entry(28, 0), 1][..],
            &[entry(0, 0), 2],
            &[entry(0, 0), u32::MAX],
        ] {
            assert!(broken(&page(0, words)), "{words:?}");
        }
        assert!(broken(&page(0, &[entry(TIME_EXTEND, 1)])));
        assert!(!broken(&page(0, &[entry(PADDING, 1), u32::MAX])));
    }

    #[test]
    fn padding_without_a_delta_ends_the_page() {
        let words = [entry(1, 1), 9, entry(PADDING, 0), 0, entry(1, 1), 9];
        let (found, _) = read(&page(0, &words));
        assert_eq!(found.len(), 1);
    }
}
