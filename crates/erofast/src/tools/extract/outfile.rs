//! A file that one or several threads write.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use erofs_engine::Engine;
use erofs_engine::erofs_format::{FileType, Inode, Xattr};

use super::job::Job;
use super::journal::Journal;
use super::metadata;
use super::stop::Stop;
use super::target::Target;
use crate::tools::parts::{self, PART, Part, Parts};

/// Runs of zeros shorter than this are written: a hole would save nothing.
const HOLE: usize = 64 << 10;

/// A file that is being written.
pub struct OutFile<'a> {
    path: Vec<u8>,
    inode: Arc<Inode>,
    /// Guarded by its own lock. Parts that no thread has started.
    parts: Mutex<Parts<'a>>,
    /// The file, created by the first thread that needs it; `None` if it could not be created.
    made: OnceLock<Option<CreatedFile>>,
    /// Atomic. Set if the file will be removed: its failure has been reported, or the extraction is
    /// ending.
    failed: AtomicBool,
}

struct CreatedFile {
    file: File,
    xattrs: Vec<Xattr>,
}

impl<'a> OutFile<'a> {
    /// A file that does not exist yet.
    pub fn new(engine: &'a Engine, path: Vec<u8>, inode: Arc<Inode>) -> Self {
        Self {
            path,
            parts: Mutex::new(Parts::new(engine, inode.clone())),
            inode,
            made: OnceLock::new(),
            failed: AtomicBool::new(false),
        }
    }

    /// The next part to write; `None` if all are taken, or if writing the file has failed.
    fn next_part(&self) -> Option<Part> {
        if self.has_failed() {
            return None;
        }
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.next()
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Abandons the file because the extraction is ending; it will be removed.
    fn abandon(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Marks the file as failed. Only the first failure is reported.
    fn fail(&self, error: impl fmt::Display, journal: &Journal) {
        if !self.failed.swap(true, Ordering::Relaxed) {
            journal.failure(&self.path, error);
        }
    }
}

/// A writer, used by one thread.
pub struct Writer<'a> {
    engine: &'a Engine,
    stop: &'a Stop<'a>,
    target: &'a Target,
    journal: &'a Journal,
    buffer: Vec<u8>,
}

impl<'a> Writer<'a> {
    pub fn new(job: &'a Job, stop: &'a Stop<'a>, target: &'a Target, journal: &'a Journal) -> Self {
        Self {
            engine: &job.engine,
            stop,
            target,
            journal,
            buffer: Vec::new(),
        }
    }

    /// Writes parts of a file until all are taken. Several threads may write one file.
    pub fn write(&mut self, file: &OutFile<'_>) {
        while let Some(part) = file.next_part() {
            if self.stop.is_set() {
                return file.abandon();
            }
            self.part(file, part);
        }
    }

    fn part(&mut self, file: &OutFile<'_>, part: Part) {
        match part {
            Part::Data(range) => self.data(file, range),
            Part::Hole(range) => self.hole(file, range),
            Part::Fault { error, .. } => file.fail(error, self.journal),
        }
    }

    fn hole(&mut self, file: &OutFile<'_>, range: Range<u64>) {
        let size = file.inode.size;
        if size <= PART && range.end == size {
            let Some(made) = self.made(file) else { return };
            if let Err(error) = made.file.set_len(size) {
                return self.failed(file, error.into());
            }
        }
        self.journal.wrote(range.end - range.start);
    }

    fn data(&mut self, file: &OutFile<'_>, range: Range<u64>) {
        let length = match parts::read(self.engine, &file.inode, &range, &mut self.buffer) {
            Ok(data) => data.len(),
            Err(error) => return file.fail(error, self.journal),
        };
        let Some(made) = self.made(file) else { return };
        let data = &self.buffer[..length];
        let written = write_data(&made.file, data, range.start).and_then(|end| {
            // If the file has several parts, its size was set when it was created.
            if file.inode.size <= PART && end < file.inode.size {
                made.file.set_len(file.inode.size)?;
            }
            Ok(())
        });
        match written {
            Ok(()) => self.journal.wrote(length as u64),
            Err(error) => self.failed(file, error.into()),
        }
    }

    /// Handles an error: ends the extraction, or gives up just this file.
    fn failed(&self, file: &OutFile<'_>, error: anyhow::Error) {
        match self.stop.takes(&error) {
            true => file.abandon(),
            false => file.fail(error, self.journal),
        }
    }

    /// Returns the created file. A big file gets its full size immediately, so unwritten ranges are
    /// holes; a small file gets its size when its data is written.
    fn made<'f>(&self, file: &'f OutFile<'_>) -> Option<&'f CreatedFile> {
        let make = || {
            let xattrs = self.engine.xattrs(&self.engine.waiting(), &file.inode)?;
            let made = self.target.make_file(&file.path)?;
            if file.inode.size > PART
                && let Err(error) = made.set_len(file.inode.size)
            {
                self.target.remove(&file.path)?;
                return Err(error.into());
            }
            Ok::<_, anyhow::Error>(CreatedFile { file: made, xattrs })
        };
        let made = file.made.get_or_init(|| match make() {
            Ok(made) => Some(made),
            Err(error) => {
                self.failed(file, error);
                None
            }
        });
        made.as_ref()
    }

    /// Finishes a file that no thread is writing any more.
    pub fn finish(&self, file: OutFile<'_>) {
        if !file.has_failed()
            && let Some(made) = self.made(&file)
        {
            let keep = self.target.keep;
            metadata::apply(
                made.file.as_fd(),
                &file.inode,
                &made.xattrs,
                keep,
                &file.path,
                self.journal,
            );
            self.journal.done(FileType::Regular);
        } else if matches!(file.made.get(), Some(Some(_)))
            && let Err(error) = self.target.remove(&file.path)
        {
            let error = format!("incomplete, and cannot be removed: {error}");
            self.journal.failure(&file.path, error);
        }
    }

    /// Creates a symlink, device node, FIFO or socket.
    pub fn node(&self, path: &[u8], inode: &Arc<Inode>) {
        if !self.stop.is_set()
            && let Err(error) = self.try_node(path, inode)
            && !self.stop.takes(&error)
        {
            self.journal.failure(path, error);
        }
    }

    fn try_node(&self, path: &[u8], inode: &Arc<Inode>) -> anyhow::Result<()> {
        let xattrs = self.engine.xattrs(&self.engine.waiting(), inode)?;
        let kind = inode.file_type();
        match kind {
            FileType::Symlink => {
                let target = self.engine.read_link(&self.engine.waiting(), inode)?;
                self.target.make_symlink(path, &target)?;
            }
            _ => match self.target.make_node(path, inode) {
                // Only root may create device nodes.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.journal.not_kept("device nodes", path, error);
                    return Ok(());
                }
                result => result?,
            },
        }
        let made = self.target.stand_in(path)?;
        let made = made.as_fd();
        metadata::apply(made, inode, &xattrs, self.target.keep, path, self.journal);
        self.journal.done(kind);
        Ok(())
    }
}

/// Writes everything but long runs of zeros, with as few calls as possible. Returns the end of the
/// data written, or `offset` if there were only zeros.
fn write_data(file: &File, data: &[u8], offset: u64) -> io::Result<u64> {
    let mut end = offset;
    for range in runs(data) {
        file.write_all_at(&data[range.clone()], offset + range.start as u64)?;
        end = offset + range.end as u64;
    }
    Ok(end)
}

/// The ranges of `data` between its long runs of zeros.
fn runs(data: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut position = 0;
    let is_zero = |block: &[u8]| block[0] == 0 && block[1..] == block[..block.len() - 1];
    std::iter::from_fn(move || {
        let length = |skip: bool, from: usize| -> usize {
            data[from..]
                .chunks(HOLE)
                .take_while(|block| is_zero(block) == skip)
                .map(<[u8]>::len)
                .sum()
        };
        let start = position + length(true, position);
        position = start + length(false, start);
        (start < position).then_some(start..position)
    })
}

#[cfg(test)]
mod tests {
    use super::{HOLE, runs};

    #[test]
    fn long_zeros_are_left_out() {
        let mut data = vec![0; 5 * HOLE + 10];
        data[HOLE] = 1;
        data[3 * HOLE - 1] = 1;
        data[5 * HOLE + 9] = 1;
        let found: Vec<_> = runs(&data).collect();
        assert_eq!(found, [HOLE..3 * HOLE, 5 * HOLE..5 * HOLE + 10]);
    }

    #[test]
    fn nothing_but_zeros_is_nothing() {
        assert_eq!(runs(&[0; 3 * HOLE]).count(), 0);
        assert_eq!(runs(&[]).count(), 0);
    }

    #[test]
    fn what_has_no_zeros_is_one_run() {
        let mut found = runs(&[7; 2 * HOLE + 1]);
        assert_eq!(found.next(), Some(0..2 * HOLE + 1));
        assert_eq!(found.next(), None);
    }
}
