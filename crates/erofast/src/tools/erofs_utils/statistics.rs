//! `dump.erofs -S`: counts files by kind and size.

use erofast_cli::print_line;
use erofs_engine::Engine;
use erofs_engine::erofs_format::{FileType, Inode};

use super::inode::{TYPES, on_disk};
use super::report::percent;
use crate::tools::tree;

/// Name endings that are counted.
const ENDS: [&str; 9] = [
    ".txt", ".so", ".xml", ".apk", ".odex", ".vdex", ".oat", ".rc", ".otf",
];
/// Number of size classes: files below 1 KiB, below 2 KiB, and so on up to 32 MiB, and larger
/// files.
const SIZES: usize = 17;

/// Counts of names: an inode with several names counts once for each.
#[derive(Default)]
struct Statistics {
    files: u64,
    types: [u64; TYPES.len()],
    compressed: u64,
    uncompressed: u64,
    content: u64,
    stored: u64,
    sizes: [u64; SIZES],
    stored_sizes: [u64; SIZES],
    ends: [u64; ENDS.len() + 1],
}

/// Counts all names and prints the statistics.
pub fn print(engine: &Engine) -> anyhow::Result<()> {
    let mut sums = Statistics::default();
    for visit in tree::walk(engine, &engine.inode(engine.root())?) {
        let entry = visit.map_err(|fault| anyhow::anyhow!(fault.error))?;
        sums.count(&entry.path, &entry.inode);
    }
    if let Some(nid) = engine.image().superblock().packed_nid {
        sums.count_stored(&*engine.inode(nid)?);
    }
    sums.print()
}

impl Statistics {
    fn count(&mut self, path: &[u8], inode: &Inode) {
        self.files += 1;
        self.types[inode.file_type() as usize] += 1;
        if inode.file_type() != FileType::Regular {
            *self.kind(inode) += 1;
            return;
        }
        self.count_stored(inode);
        self.content = self.content.saturating_add(inode.size);
        self.sizes[size_class(inode.size)] += 1;
        let dot = path.iter().rposition(|&byte| byte == b'.' || byte == b'/');
        let end = dot.filter(|&at| path[at] == b'.').map(|at| &path[at..]);
        // A prefix of an ending, as in `a.t`, counts as the first ending that starts with it.
        let known = |end: &[u8]| {
            ENDS.iter()
                .position(|known| known.as_bytes().starts_with(end))
        };
        self.ends[end.and_then(known).unwrap_or(ENDS.len())] += 1;
    }

    fn count_stored(&mut self, inode: &Inode) {
        *self.kind(inode) += 1;
        let stored = on_disk(inode);
        self.stored = self.stored.saturating_add(stored);
        self.stored_sizes[size_class(stored)] += 1;
    }

    fn kind(&mut self, inode: &Inode) -> &mut u64 {
        match inode.is_compressed() {
            true => &mut self.compressed,
            false => &mut self.uncompressed,
        }
    }

    fn print(&self) -> anyhow::Result<()> {
        outln!("Filesystem total file count:\t\t{}", self.files);
        for (name, count) in TYPES.iter().zip(self.types) {
            outln!("Filesystem {name} count:\t\t{count}");
        }
        let rate = percent(self.stored, self.content);
        for (what, value) in [
            ("compressed files:", self.compressed.to_string()),
            ("uncompressed files:", self.uncompressed.to_string()),
            (
                "total original file size:",
                format!("{} Bytes", self.content),
            ),
            ("total file size:", format!("{} Bytes", self.stored)),
            ("compress rate:", format!("{rate}%")),
        ] {
            outln!("Filesystem {what:<29}{value}");
        }
        let rows = |counts: [u64; SIZES]| (0..).map(size_name).zip(counts);
        self.chart("Original file size", ">=(KB) .. <(KB) ", rows(self.sizes))?;
        self.chart(
            "On-disk file size",
            ">=(KB) .. <(KB) ",
            rows(self.stored_sizes),
        )?;
        let ends = ENDS
            .iter()
            .chain(&["others"])
            .map(|end| format!("{end:<17}"));
        self.chart("File type", "type", ends.zip(self.ends))
    }

    /// Prints counts, each as a percentage of the regular files.
    fn chart(
        &self,
        title: &str,
        unit: &str,
        rows: impl Iterator<Item = (String, u64)>,
    ) -> anyhow::Result<()> {
        outln!("\n{title} distribution:");
        outln!(
            "{unit:<16} {:>11} {:>16} |{:<50}|",
            "count",
            "ratio",
            "distribution"
        );
        let files = self.types[FileType::Regular as usize];
        for (name, count) in rows {
            let ratio = (count * 100) as f64 / files.max(1) as f64;
            let bar = "#".repeat((ratio / 2.0) as usize);
            print_line(format_args!(
                "{name:<16}\t{count:<11} {ratio:>8.2}% |{bar:<50}|"
            ))?;
        }
        Ok(())
    }
}

/// The index of a size class. Each class reaches up to twice the size of the previous one; the
/// first holds files below 1 KiB.
fn size_class(bytes: u64) -> usize {
    let kib = bytes >> 10;
    ((u64::BITS - kib.leading_zeros()) as usize).min(SIZES - 1)
}

fn size_name(class: usize) -> String {
    let from = (1_u64 << class) / 2;
    match class == SIZES - 1 {
        true => format!("{from:>6} .."),
        false => format!("{from:>6} .. {:<6}", 1_u64 << class),
    }
}
