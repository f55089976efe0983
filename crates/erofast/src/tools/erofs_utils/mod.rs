//! `fsck.erofs` and `dump.erofs`: this program under the names of two erofs-utils programs.
//! Options, exit statuses and the lines that scripts read are those of version 1.9; the code that
//! checks and extracts is this program's own.

mod dump;
mod fsck;
mod inode;
mod report;
mod statistics;
mod superblock;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use erofast_cli::{Usage, is_broken_pipe, one_line, parse};
use erofs_engine::Error;

use self::report::message;

/// Exit status of fsck.erofs for anything but success.
const FAILED: u8 = 1;
/// EINVAL and EIO, negated, as the exit status of dump.erofs shows them.
const INVALID: u8 = 256_u16.wrapping_sub(22) as u8;
const IO: u8 = 256_u16.wrapping_sub(5) as u8;

/// Runs the erofs-utils program that this process is named after; `None` if it has another name.
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

/// The exit status. dump.erofs exits with a negative error number, truncated to eight bits.
fn status(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<Error>() {
        Some(error) => 0_i32.wrapping_sub(error.errno()) as u8,
        None if error.is::<Usage>() => INVALID,
        None => IO,
    }
}
