//! The distribution of sizes and ratios over the files of an image.

use std::collections::BTreeMap;

use erofast_cli::units;
use serde::Serialize;

use crate::tools::text;

/// Upper bounds of the size ranges; larger files have a separate range.
const SIZES: [u64; 8] = [
    0,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
    16 << 20,
];
/// Number of name endings shown.
const ENDINGS: usize = 12;
/// Maximum number of endings counted separately.
const KNOWN_ENDINGS: usize = 4096;
/// Maximum length of an ending; anything longer is taken for a part of the name.
const ENDING_MAX: usize = 10;

/// Number of files, their bytes, and the bytes stored for them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sums {
    pub files: u64,
    pub bytes: u64,
    pub stored_bytes: u64,
}

impl Sums {
    fn add(&mut self, bytes: u64, stored: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.stored_bytes = self.stored_bytes.saturating_add(stored);
    }
}

/// Statistics of all regular files, hard links counted once.
#[derive(Debug, Default, Serialize)]
pub struct Spread {
    /// By size: each range with its upper bound, or `None` for the last range.
    pub sizes: Vec<(Option<u64>, Sums)>,
    /// Compressed files by the ratio of stored to content bytes: up to 10 %, up to 20 % and so on;
    /// the last range is for files that did not shrink.
    pub ratios: [u64; 11],
    /// By name ending, in descending order of bytes.
    pub endings: Vec<(String, Sums)>,
    #[serde(skip)]
    by_ending: BTreeMap<String, Sums>,
}

impl Spread {
    /// Adds a file.
    pub fn add(&mut self, path: &[u8], bytes: u64, stored: u64, compressed: bool) {
        if self.sizes.is_empty() {
            let ends = SIZES.iter().copied().map(Some).chain([None]);
            self.sizes = ends.map(|end| (end, Sums::default())).collect();
        }
        let range = SIZES.partition_point(|end| *end < bytes);
        self.sizes[range].1.add(bytes, stored);
        if compressed && bytes > 0 {
            let tenths = (u128::from(stored) * 10).div_ceil(bytes.into());
            // A file that is stored entirely in fragments is in the first range.
            let range = usize::try_from(tenths).map_or(11, |tenths| tenths.clamp(1, 11));
            self.ratios[range - 1] += 1;
        }
        let mut ending = ending(path);
        if self.by_ending.len() >= KNOWN_ENDINGS && !self.by_ending.contains_key(&ending) {
            ending = "(other)".to_owned();
        }
        self.by_ending.entry(ending).or_default().add(bytes, stored);
    }

    /// Sorts and shortens the list of endings, once all files have been added.
    pub fn finish(&mut self) {
        let mut endings: Vec<_> = std::mem::take(&mut self.by_ending).into_iter().collect();
        endings.sort_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then_with(|| a.0.cmp(&b.0)));
        endings.truncate(ENDINGS);
        self.endings = endings;
    }

    /// Prints all statistics.
    pub fn print(&self) -> anyhow::Result<()> {
        outln!("files by size:");
        for (end, sums) in self.sizes.iter().filter(|(_, sums)| sums.files > 0) {
            let range = match end {
                Some(0) => "empty".to_owned(),
                Some(end) => format!("to {}", units::size(*end)),
                None => "more".to_owned(),
            };
            row(&range, sums)?;
        }
        outln!("files by name extension:");
        for (ending, sums) in &self.endings {
            row(ending, sums)?;
        }
        if self.ratios.iter().any(|files| *files > 0) {
            outln!("compressed files by stored size, in % of their content:");
            for (index, files) in self.ratios.iter().enumerate() {
                let range = match index {
                    10 => "not smaller".to_owned(),
                    tenths => format!("to {} %", (tenths + 1) * 10),
                };
                outln!("  {range:<20} {files:>10}");
            }
        }
        Ok(())
    }
}

fn row(what: &str, sums: &Sums) -> anyhow::Result<()> {
    let (stored, bytes) = (units::size(sums.stored_bytes), units::size(sums.bytes));
    outln!(
        "  {what:<20} {:>10}   {stored:>12} for {bytes:>12}",
        sums.files
    );
    Ok(())
}

/// The ending of a name, such as `.so` for `libz.so`; `(none)` if there is no ending.
fn ending(path: &[u8]) -> String {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let dot = name.iter().rposition(|&byte| byte == b'.');
    match dot {
        // A leading dot marks a hidden file, and a number after a dot is a version.
        Some(dot) if dot > 0 && (2..=ENDING_MAX).contains(&(name.len() - dot)) => {
            let ending = &name[dot..];
            if ending[1..].iter().all(u8::is_ascii_digit) {
                return "(version)".to_owned();
            }
            text::name(ending)
        }
        _ => "(none)".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_in_one_range_of_sizes_and_of_ratios() {
        let mut spread = Spread::default();
        for (bytes, stored) in [
            (0, 0),
            (1, 1),
            (4096, 4096),
            (4097, 410),
            (100, 101),
            (1 << 40, 0),
        ] {
            spread.add(b"a/b.txt", bytes, stored, bytes != 1);
        }
        spread.finish();
        let files: Vec<u64> = spread.sizes.iter().map(|(_, sums)| sums.files).collect();
        assert_eq!(files, [1, 3, 1, 0, 0, 0, 0, 0, 1]);
        // 410 of 4097 bytes are slightly more than a tenth.
        assert_eq!(spread.ratios, [1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(spread.endings[0].1.files, 6);
    }

    #[test]
    fn endings_are_those_of_names() {
        for (path, expected) in [
            ("usr/lib/libz.so", ".so"),
            ("a.d/readme", "(none)"),
            (".bashrc", "(none)"),
            ("libz.so.1", "(version)"),
            ("x.", "(none)"),
        ] {
            assert_eq!(ending(path.as_bytes()), expected, "{path}");
        }
    }
}
