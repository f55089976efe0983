//! `erofast cat`: writes files to standard output.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use anyhow::bail;
use erofast_cli::{Outcome, one_line, stdout};
use erofs_engine::erofs_format::{FileType, Inode};
use erofs_engine::{Engine, ReadContext, WorkersMode};
use erofs_mount::note;

use crate::cli::tools::images::CatArgs;
use crate::tools::glob::{self, Found};
use crate::tools::name::EntryPath;

/// Number of bytes per read and write.
const STEP: usize = 1 << 20;

/// Runs the subcommand. A file that cannot be read is reported, and the others are still written.
pub fn run(args: &CatArgs) -> anyhow::Result<Outcome> {
    let read = |engine: &Arc<Engine>| cat(engine, args);
    args.image.read(WorkersMode::PerCpu, read)
}

fn cat(engine: &Engine, args: &CatArgs) -> anyhow::Result<Outcome> {
    let mut cat = Cat {
        engine,
        out: stdout(),
        buffer: Vec::new(),
        outcome: Outcome::Fine,
    };
    for pattern in &args.paths {
        match glob::expand(engine, pattern.as_bytes(), true) {
            Ok(found) => {
                for entry in found {
                    let written = cat.entry(entry);
                    cat.unless_unreadable(written)?;
                }
            }
            Err(error) => cat.unless_unreadable(Err(error))?,
        }
    }
    cat.out.flush()?;
    Ok(cat.outcome)
}

struct Cat<'a, W> {
    engine: &'a Engine,
    out: W,
    buffer: Vec<u8>,
    outcome: Outcome,
}

impl<W: Write> Cat<'_, W> {
    /// Reports an entry's fault. An output error ends the command.
    fn unless_unreadable(&mut self, written: anyhow::Result<()>) -> anyhow::Result<()> {
        match written {
            Err(error) if error.is::<io::Error>() => Err(error),
            Err(error) => {
                note(one_line(&error));
                self.outcome = Outcome::Faulty;
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn entry(&mut self, entry: Found) -> anyhow::Result<()> {
        let path = EntryPath::new(&entry.path);
        let image = self.engine.name();
        let inode = entry.inode?;
        match inode.file_type() {
            FileType::Regular => write(self.engine, &inode, &mut self.out, &mut self.buffer),
            // `**` matches directories too.
            FileType::Directory if entry.by_pattern => Ok(()),
            FileType::Directory => bail!("{image}: {path}: is a directory"),
            _ => bail!("{image}: {path}: not a regular file"),
        }
    }
}

/// Writes the content of a file.
///
/// # Errors
/// The engine's error, or the `io::Error` of the output.
pub fn write(
    engine: &Engine,
    inode: &Inode,
    out: &mut impl Write,
    buffer: &mut Vec<u8>,
) -> anyhow::Result<()> {
    buffer.resize(STEP, 0);
    let context = ReadContext::Reader { readahead: false };
    let mut offset = 0;
    loop {
        let count = engine.read_at(&engine.request(context), inode, offset, buffer)?;
        if count == 0 {
            return Ok(());
        }
        out.write_all(&buffer[..count])?;
        offset += count as u64;
    }
}
