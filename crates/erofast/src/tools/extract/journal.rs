//! Result of an extraction: counters, failures, lost metadata.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use erofast_cli::bar::Bar;
use erofast_cli::units;
use erofs_engine::erofs_format::FileType;
use erofs_mount::note;
use serde::Serialize;

use crate::tools::name::EntryPath;
use crate::tools::text;

/// Counters and failures, which all threads add to.
pub struct Journal {
    /// Prints the line about a failure.
    report: fn(&str),
    /// Guarded by its own lock. The summary that `--json` prints, except for the number of bytes.
    summary: Mutex<Summary>,
    bar: Bar,
}

/// The JSON output of `extract`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Regular files; further names of a file count as hard links.
    pub files: u64,
    /// Bytes of content of regular files, including holes.
    pub bytes: u64,
    pub directories: u64,
    pub symlinks: u64,
    pub others: u64,
    pub hard_links: u64,
    /// Entries that are missing or incomplete because of an error.
    pub failures: Vec<Failure>,
    /// Further failures, which were printed but are not listed.
    #[serde(skip_serializing_if = "text::is_zero")]
    pub failures_left_out: u64,
    /// Metadata that could not be preserved because the system or the user's rights do not allow
    /// it.
    pub not_kept: BTreeMap<String, NotKept>,
}

/// Maximum number of failures kept in memory.
const FAILURES: usize = 10_000;

/// Something that could not be extracted.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    #[serde(flatten)]
    path: EntryPath,
    error: String,
}

/// One kind of lost metadata.
#[derive(Clone, Debug, Serialize)]
pub struct NotKept {
    entries: u64,
    /// The first entry affected.
    first: String,
    /// The error for that entry.
    error: String,
}

impl Journal {
    /// An empty journal. `report` prints the line about a failure. `total` counts the bytes to
    /// extract; it is called only on a terminal.
    pub fn new(report: fn(&str), total: impl FnOnce() -> u64) -> Self {
        Self {
            report,
            summary: Mutex::default(),
            bar: Bar::of_bytes("extract", total),
        }
    }

    fn summary(&self) -> MutexGuard<'_, Summary> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an entry that was created and has received all metadata that could be preserved.
    pub fn done(&self, file_type: FileType) {
        let mut summary = self.summary();
        *match file_type {
            FileType::Regular => &mut summary.files,
            FileType::Directory => &mut summary.directories,
            FileType::Symlink => &mut summary.symlinks,
            _ => &mut summary.others,
        } += 1;
    }

    /// Counts another name of an entry.
    pub fn linked(&self) {
        self.summary().hard_links += 1;
    }

    /// Counts bytes of content that were written.
    pub fn wrote(&self, bytes: u64) {
        self.bar.add(bytes);
    }

    /// Records that an entry is missing or incomplete.
    pub fn failure(&self, path: &[u8], error: impl fmt::Display) {
        let failure = Failure {
            path: EntryPath::new(path),
            error: error.to_string(),
        };
        let line = format!("{}: {}", failure.path, failure.error);
        self.bar.above(|| (self.report)(&line));
        let mut summary = self.summary();
        match summary.failures.len() < FAILURES {
            true => summary.failures.push(failure),
            false => summary.failures_left_out += 1,
        }
    }

    /// Records that some metadata of an entry could not be preserved.
    pub fn not_kept(&self, what: &str, path: &[u8], error: impl fmt::Display) {
        let mut summary = self.summary();
        let lost = summary.not_kept.entry(what.to_owned());
        let lost = lost.or_insert_with(|| NotKept {
            entries: 0,
            first: text::name(path),
            error: error.to_string(),
        });
        lost.entries += 1;
    }

    /// Ends the progress display, reports each kind of loss once, and returns the counts.
    pub fn finish(&self) -> Summary {
        self.bar.finish();
        let mut summary = self.summary().clone();
        summary.bytes = self.bar.done();
        for (what, lost) in &summary.not_kept {
            note(format_args!(
                "not kept: {what} ({}, first for {}: {})",
                units::count(lost.entries, "time"),
                lost.first,
                lost.error
            ));
        }
        summary
    }
}

impl Summary {
    /// Whether everything was extracted.
    pub fn is_whole(&self) -> bool {
        self.failures.is_empty()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entries = [
            units::count(self.files, "file"),
            units::count(self.directories, "directory"),
            units::count(self.symlinks, "symlink"),
            units::count(self.others, "other"),
            units::count(self.hard_links, "hard link"),
        ];
        let failures = self.failures.len() as u64 + self.failures_left_out;
        write!(
            f,
            "{}, {} extracted: {}",
            entries.join(", "),
            units::size(self.bytes),
            units::count(failures, "failure")
        )
    }
}
