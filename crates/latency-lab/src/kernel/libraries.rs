//! The libraries that a program is loaded with.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::sandbox::{Sandbox, output};
use crate::Result;

/// The dynamic loader of x86-64.
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Libraries of a program of this machine, the loader among them; none if it is linked statically.
pub(super) fn of(program: &Path) -> Result<Vec<PathBuf>> {
    let mut command = Command::new(program);
    // The loader lists them instead of starting the program, whichever loader it is.
    command.env("LD_TRACE_LOADED_OBJECTS", "1").arg("--version");
    let what = format!("looking for the libraries of {}", program.display());
    Ok(parse_list(&output(&what, &mut command)?))
}

/// Libraries of a program inside of the sandbox, by their paths there.
pub(super) fn inside(sandbox: &Sandbox, program: &str) -> Result<Vec<PathBuf>> {
    let mut command = sandbox.command(LOADER);
    command.args(["--list", program]);
    let text = output(
        &format!("looking for the libraries of {program}"),
        &mut command,
    )?;
    Ok(parse_list(&text))
}

/// Lines as "libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f...)", and the loader's path.
fn parse_list(text: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        line.split_whitespace()
            .find(|word| word.starts_with('/'))
            .map(Into::into)
    };
    text.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_list_is_read() {
        let list = "\tlinux-vdso.so.1 (0x1)\n\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x2)\n\
                    \t/lib64/ld-linux-x86-64.so.2 => /lib64/ld-linux-x86-64.so.2 (0x3)\n";
        assert_eq!(
            parse_list(list),
            [
                Path::new("/lib/x86_64-linux-gnu/libm.so.6"),
                Path::new(LOADER)
            ]
        );
    }
}
