//! The findings of `check`, and how they are printed.

use erofast_cli::units;
use erofs_engine::erofs_format::Nid;
use serde::Serialize;

use crate::tools::name::EntryPath;
use crate::tools::text;

/// Maximum number of faults, and of oddities, that are kept in memory and listed.
pub const FAULTS: usize = 10_000;

/// The JSON output of `check`.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Number of regular files; hard links to one file count once.
    pub files: u64,
    /// Number of bytes of correct content, including holes.
    pub bytes: u64,
    /// How many of these bytes are in holes, which are not stored and were not read.
    pub hole_bytes: u64,
    pub directories: u64,
    pub symlinks: u64,
    pub others: u64,
    /// Everything that cannot be read.
    pub faults: Vec<Fault>,
    /// Anything that is readable, but that mkfs.erofs never writes.
    pub oddities: Vec<Fault>,
    /// Number of faults and oddities that are not listed.
    #[serde(skip_serializing_if = "text::is_zero")]
    pub left_out: u64,
    /// The comparison with the manifest, if `--manifest` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Compared>,
}

/// Comparison of an image with a manifest. Differences are listed as faults.
#[derive(Debug, Default, Serialize)]
pub struct Compared {
    /// Number of files that the manifest lists.
    pub listed: u64,
    /// Number of listed files with a matching sum.
    pub matched: u64,
    /// Number of names of regular files that the manifest does not list.
    pub unlisted: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Fault {
    #[serde(flatten)]
    pub path: EntryPath,
    pub nid: Nid,
    pub error: String,
}

impl Fault {
    /// A fault of the inode `nid`, found at `path`.
    pub fn new(path: &[u8], nid: Nid, error: impl ToString) -> Self {
        Self {
            path: EntryPath::new(path),
            nid,
            error: error.to_string(),
        }
    }
}

/// Prints a report as text, the faults first.
pub fn print(report: &Report, name: &str) -> anyhow::Result<()> {
    for fault in &report.faults {
        outln!("fault: {}: {}", fault.path, fault.error);
    }
    for oddity in &report.oddities {
        outln!("warning: {}: {}", oddity.path, oddity.error);
    }
    if report.left_out > 0 {
        outln!("and {} more faults and warnings", report.left_out);
    }
    if let Some(Compared {
        listed,
        matched,
        unlisted,
    }) = &report.manifest
    {
        let listed = units::count(*listed, "file");
        outln!("manifest: {matched} of {listed} match; not listed: {unlisted}");
    }
    outln!("{name}: {}", summary(report));
    Ok(())
}

/// Formats the number of entries and bytes, and the number of faults.
fn summary(report: &Report) -> String {
    let entries = [
        units::count(report.files, "file"),
        units::count(report.directories, "directory"),
        units::count(report.symlinks, "symlink"),
        units::count(report.others, "other"),
    ];
    let holes = match report.hole_bytes {
        0 => String::new(),
        bytes => format!(", {} of holes", units::size(bytes)),
    };
    format!(
        "{}, {} read{holes}: {}, {}",
        entries.join(", "),
        units::size(report.bytes.saturating_sub(report.hole_bytes)),
        units::count(report.faults.len() as u64, "fault"),
        units::count(report.oddities.len() as u64, "warning"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_not_read_and_one_of_a_kind_is_singular() {
        let report = Report {
            files: 1,
            directories: 2,
            bytes: (1 << 40) + 512,
            hole_bytes: 1 << 40,
            faults: vec![Fault::new(b"a", 1, "broken")],
            ..Report::default()
        };
        assert_eq!(
            summary(&report),
            "1 file, 2 directories, 0 symlinks, 0 others, 512 bytes read, 1.0 TiB of holes: \
             1 fault, 0 warnings"
        );
    }
}
