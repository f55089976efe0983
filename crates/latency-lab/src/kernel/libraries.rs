//! The libraries that a program is loaded with.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::sandbox::{Sandbox, output};
use crate::Result;

/// The dynamic loader of x86-64.
pub(super) const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// Libraries of this very process, the loader among them; none when it was linked statically.
pub(super) fn of_this_process() -> Vec<PathBuf> {
    parse_maps(&fs::read_to_string("/proc/self/maps").unwrap_or_default())
}

fn parse_maps(maps: &str) -> Vec<PathBuf> {
    let paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let libraries: BTreeSet<&Path> = paths
        .map(Path::new)
        .filter(|path| path.is_absolute() && is_library(path))
        .collect();
    libraries.into_iter().map(Path::to_path_buf).collect()
}

fn is_library(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".so") || name.contains(".so.")
}

/// Libraries of a program inside of the sandbox, by their paths there.
pub(super) fn inside(sandbox: &Sandbox, program: &str) -> Result<Vec<PathBuf>> {
    let mut command = sandbox.command(LOADER);
    command.args(["--list", program]);
    let text = output(
        &format!("looking for the libraries of {program}"),
        &mut command,
    )?;
    let mut libraries = parse_list(&text);
    libraries.push(LOADER.into());
    Ok(libraries)
}

/// Lines as "libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f...)".
fn parse_list(text: &str) -> Vec<PathBuf> {
    let paths = text.lines().filter_map(|line| line.split_once(" => "));
    paths
        .filter_map(|(_, right)| right.split_whitespace().next())
        .filter(|path| path.starts_with('/') && *path != LOADER)
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_libraries_are_told_from_other_files() {
        let maps = "55d0-55d1 r-xp 00000000 fe:00 1 /usr/bin/erofast\n\
                    7f00-7f01 r-xp 00000000 fe:00 2 /lib/x86_64-linux-gnu/libc.so.6\n\
                    7f01-7f02 r--p 00001000 fe:00 2 /lib/x86_64-linux-gnu/libc.so.6\n\
                    7f02-7f03 rw-p 00000000 00:00 0 [heap]\n\
                    7f03-7f04 rw-p 00000000 00:00 0\n";
        assert_eq!(
            parse_maps(maps),
            [Path::new("/lib/x86_64-linux-gnu/libc.so.6")]
        );
    }

    #[test]
    fn the_loaders_list_is_read() {
        let list = "\tlinux-vdso.so.1 (0x1)\n\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x2)\n\
                    \t/lib64/ld-linux-x86-64.so.2 => /lib64/ld-linux-x86-64.so.2 (0x3)\n";
        assert_eq!(
            parse_list(list),
            [Path::new("/lib/x86_64-linux-gnu/libm.so.6")]
        );
    }
}
