//! The location of the other program: `erofast-lab` for `erofast`, and vice versa.

use std::path::{Path, PathBuf};

/// The path of the program with this name, which is beside this program or in `PATH`; just the name
/// if it is in neither place.
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(Path::to_owned);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(std::env::split_paths(&path));
    let mut programs = folders.map(|folder| folder.join(name));
    programs
        .find(|program| program.is_file())
        .unwrap_or_else(|| name.into())
}
