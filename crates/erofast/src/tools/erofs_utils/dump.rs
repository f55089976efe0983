//! `dump.erofs`: describes an image.

use std::io::{self, Write};
use std::sync::Arc;

use erofs_engine::erofs_format::{FileType, Inode};
use erofs_engine::{Engine, WorkersMode};

use super::report::message;
use super::{inode, statistics, superblock};
use crate::cli::tools::erofs_utils::DumpArgs;
use crate::tools::info::uuid;

/// Runs the program. Faults in the inode are printed, but do not count as a failure.
pub fn run(args: &DumpArgs) -> anyhow::Result<()> {
    let read = |engine: &Arc<Engine>| dump(args, engine);
    args.image.read(WorkersMode::Inline, read)
}

fn dump(args: &DumpArgs, engine: &Engine) -> anyhow::Result<()> {
    let described = args.target.path.is_some() || args.target.nid.is_some();
    if args.blkid_udev {
        return for_udev(engine);
    }
    if args.cat && (args.superblock || args.statistics || args.ls) {
        message('E', "--cat cannot be used with -s, -S and --ls");
        return Ok(());
    }
    if args.cat {
        return unless_failed(args, engine, |inode| cat(engine, inode));
    }
    if args.superblock || !(args.statistics || args.extents || described) {
        superblock::print(engine.image())?;
    }
    if args.statistics {
        statistics::print(engine)?;
    }
    match (described, args.extents) {
        (true, _) => unless_failed(args, engine, |inode| inode::print(engine, inode, args)),
        (false, true) => {
            message('E', "-e needs --path or --nid");
            Ok(())
        }
        (false, false) => Ok(()),
    }
}

/// Runs an action on the selected inode. Fails only if standard output cannot be written.
fn unless_failed(
    args: &DumpArgs,
    engine: &Engine,
    act: impl Fn(&Inode) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let found = args.target.find(engine);
    let acted = match found {
        Ok(Some(inode)) => act(&inode),
        Ok(None) => Err(anyhow::anyhow!("--path or --nid is missing")),
        Err(error) => Err(error.into()),
    };
    match acted {
        Err(error) if !error.is::<io::Error>() => {
            message('E', error);
            Ok(())
        }
        acted => acted,
    }
}

fn for_udev(engine: &Engine) -> anyhow::Result<()> {
    let uuid = uuid(&engine.image().superblock().uuid);
    outln!("ID_FS_UUID={uuid}");
    outln!("ID_FS_UUID_ENC={uuid}");
    outln!("ID_FS_TYPE=erofs");
    outln!("ID_FS_USAGE=filesystem");
    Ok(())
}

fn cat(engine: &Engine, inode: &Inode) -> anyhow::Result<()> {
    let mut out = erofast_cli::stdout();
    if inode.file_type() == FileType::Symlink {
        return Ok(out.write_all(&engine.read_link(&engine.waiting(), inode)?)?);
    }
    crate::tools::cat::write(engine, inode, &mut out, &mut Vec::new())?;
    Ok(out.flush()?)
}
