//! `erofast trace` and `erofast lab`, which the program erofast-lab implements.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, bail};
use erofast_cli::{Outcome, program};

/// Replaces this process with erofast-lab, which then receives the signals and sets the exit
/// status.
pub fn run() -> anyhow::Result<Outcome> {
    let mut command = Command::new(program("erofast-lab"));
    let error = command.args(std::env::args_os().skip(1)).exec();
    if error.kind() == io::ErrorKind::NotFound {
        bail!("erofast-lab is not installed (Debian package: erofast-lab)");
    }
    Err(error).context("cannot start erofast-lab")
}
