//! `erofast cat`: files to the standard output.

use std::io::{self, Write};

use anyhow::bail;
use erofs_engine::erofs_format::{FileType, Inode};
use erofs_engine::{Engine, ReadContext, WorkersMode};

use crate::cli::CatArgs;
use crate::outcome::Outcome;
use crate::{glob, text};

/// Bytes read and written at once.
const STEP: usize = 1 << 20;

/// Runs the subcommand. A file that cannot be read ends it: what came before was written.
pub fn run(args: &CatArgs) -> anyhow::Result<Outcome> {
    let engine = Engine::open(&args.image.image, &args.image.options(WorkersMode::PerCpu))?;
    let mut out = io::stdout().lock();
    let mut buffer = vec![0; STEP];
    for pattern in &args.paths {
        for (path, inode) in glob::expand(&engine, pattern.as_bytes(), true)? {
            let path = text::name(&path);
            match inode.file_type() {
                FileType::Regular => {}
                FileType::Directory => bail!("{}: {path}: is a directory", engine.name()),
                _ => bail!("{}: {path}: is not a regular file", engine.name()),
            }
            write(&engine, &inode, &mut buffer, &mut out)?;
        }
    }
    out.flush()?;
    Ok(Outcome::Fine)
}

fn write(
    engine: &Engine,
    inode: &Inode,
    buffer: &mut [u8],
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut offset = 0;
    loop {
        let context = ReadContext::Reader { readahead: false };
        let count = engine.read_at(inode, offset, buffer, context)?;
        if count == 0 {
            return Ok(());
        }
        out.write_all(&buffer[..count])?;
        offset += count as u64;
    }
}
