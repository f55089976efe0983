//! `erofast cat`: files to the standard output.

use std::io::{self, Write};

use anyhow::bail;
use erofs_engine::erofs_format::FileType;
use erofs_engine::{Engine, ReadContext, WorkersMode};

use crate::Outcome;
use crate::cli::CatArgs;

/// Bytes read and written at once.
const STEP: usize = 1 << 20;

/// Runs the subcommand. A file that cannot be read ends it: what came before was written.
pub fn run(args: &CatArgs) -> anyhow::Result<Outcome> {
    let engine = Engine::open(&args.image.image, &args.image.options(WorkersMode::PerCpu))?;
    let mut out = io::stdout().lock();
    let mut buffer = vec![0; STEP];
    for path in &args.paths {
        let inode = engine.resolve(path.as_bytes(), true)?;
        match inode.file_type() {
            FileType::Regular => {}
            FileType::Directory => bail!("{}: {path}: is a directory", engine.name()),
            _ => bail!("{}: {path}: is not a regular file", engine.name()),
        }
        let mut offset = 0;
        loop {
            let context = ReadContext::Reader { readahead: false };
            let count = engine.read_at(&inode, offset, &mut buffer, context)?;
            if count == 0 {
                break;
            }
            out.write_all(&buffer[..count])?;
            offset += count as u64;
        }
    }
    out.flush()?;
    Ok(Outcome::Fine)
}
