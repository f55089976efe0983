//! `fsck.erofs` and `dump.erofs`: the program under names of erofs-utils. Options, exit statuses and
//! the lines that scripts read are those of version 1.9; checking and extracting are this program's.

mod dump;
mod fsck;
mod inode;
mod statistics;
mod superblock;

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use erofast_cli::{Usage, is_broken_pipe, one_line, parse};
use erofs_engine::erofs_format::Inode;
use erofs_engine::{Engine, Error, WorkersMode};

use crate::cli::{ImageArgs, TargetArgs};
use crate::text;

/// Exit status of fsck.erofs for anything but success.
const FAILED: u8 = 1;
/// EINVAL and EIO, negative, as the exit status of dump.erofs shows them.
const INVALID: u8 = 256_u16.wrapping_sub(22) as u8;
const IO: u8 = 256_u16.wrapping_sub(5) as u8;

/// Runs the program of erofs-utils whose name this process has; none if it has another.
pub fn run(name: &OsStr) -> Option<ExitCode> {
    let ended = match Path::new(name).file_name()?.as_bytes() {
        b"fsck.erofs" => parse().and_then(|args| fsck::run(&args)),
        b"dump.erofs" => parse().and_then(|args| dump::run(&args)).map(|()| true),
        _ => return None,
    };
    let is_fsck = name.as_bytes().ends_with(b"fsck.erofs");
    let status = match ended {
        Ok(true) => 0,
        Ok(false) => FAILED,
        Err(error) if is_broken_pipe(&error) => 0,
        Err(error) => {
            message('E', one_line(&error));
            if is_fsck { FAILED } else { status(&error) }
        }
    };
    Some(ExitCode::from(status))
}

/// dump.erofs returns a negative error number, of which eight bits are left.
fn status(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<Error>() {
        Some(error) => 0_i32.wrapping_sub(error.errno()) as u8,
        None if error.is::<Usage>() => INVALID,
        None => IO,
    }
}

/// A line on the standard error: `E`, `W` or `I` for an error, a warning or information.
fn message(level: char, what: impl Display) {
    let what = text::line(&what.to_string());
    let _ = io::stderr().write_all(format!("<{level}> erofs: {what}\n").as_bytes());
}

fn open(image: &ImageArgs) -> anyhow::Result<Arc<Engine>> {
    sys::allocator::exit_without_memory();
    Ok(Engine::open(
        &image.image,
        &image.options(WorkersMode::Inline),
    )?)
}

impl TargetArgs {
    /// The inode that is meant; none if neither option is given.
    fn find(&self, engine: &Engine) -> Result<Option<Arc<Inode>>, Error> {
        let found = match (&self.path, self.nid) {
            (Some(path), _) => engine.resolve(path.as_bytes(), false),
            (None, Some(nid)) => engine.inode(nid),
            (None, None) => return Ok(None),
        };
        found.map(Some)
    }
}

/// A name: its bytes, but nothing that commands a terminal.
fn shown(name: &[u8]) -> Vec<u8> {
    match io::stdout().is_terminal() {
        true => text::name(name).into_bytes(),
        false => name.to_vec(),
    }
}

/// `part` in per cent of `whole`. C prints 0 of 0 with a sign.
fn percent(part: u64, whole: u64) -> String {
    match (part, whole) {
        (0, 0) => "-nan".to_owned(),
        (_, 0) => "inf".to_owned(),
        _ => format!("{:.2}", (part as f64 * 100.0) / whole as f64),
    }
}
