//! Profiles that travel with an image: exported from those learned here, and merged.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use erofast_cli::Outcome;
use erofs_engine::remote;
use erofs_mount::note;
use launch_profile::{Learned, Program, limits};

use super::files::{NONE, named, only, read, replace};
use super::path_of;
use crate::cli::tools::profile::{ProfileExportArgs, ProfileMergeArgs};

/// Runs `profile export`.
pub fn export(args: &ProfileExportArgs) -> anyhow::Result<Outcome> {
    let shown = remote::shown(&args.profile);
    let (_, found) = named(&args.profile, &args.opening)?;
    let (_, learned) = only(found, &shown, "only one profile can be exported")?;
    let mut programs = learned?.programs;
    // A profile that is being learned again has no windows yet.
    programs.retain(|program| !program.profile.windows.is_empty());
    ensure!(!programs.is_empty(), "{shown}: {NONE}");
    let known = |path: &String| programs.iter().any(|program| path_of(program) == *path);
    if let Some(path) = args.programs.iter().find(|path| !known(path)) {
        bail!("{shown}: no profile of {path}");
    }
    let is_wanted =
        |program: &Program| args.programs.is_empty() || args.programs.contains(&path_of(program));
    programs.retain(is_wanted);
    write(programs, args.output.as_ref())
}

/// Runs `profile merge`.
pub fn merge(args: &ProfileMergeArgs) -> anyhow::Result<Outcome> {
    let mut programs = Vec::new();
    for path in &args.profiles {
        join(&mut programs, read(path)?.programs);
    }
    write(programs, args.output.as_ref())
}

/// Adds programs. A program that is already present also gets the reads of the added program with
/// the same path.
pub(super) fn join(programs: &mut Vec<Program>, others: Vec<Program>) {
    for other in others {
        match programs.iter_mut().find(|one| one.path == other.path) {
            Some(one) => {
                one.launches = one.launches.saturating_add(other.launches);
                one.profile.merge(&other.profile);
                one.profile.trim(&one.trim);
            }
            None => programs.push(other),
        }
    }
}

/// Writes the profile that travels with the image. Programs that do not fit are named, and count as
/// a failure.
pub(super) fn write(programs: Vec<Program>, output: Option<&PathBuf>) -> anyhow::Result<Outcome> {
    let (text, left) = Learned::travelling(programs);
    let path = output.map_or(Path::new("-"), PathBuf::as_path);
    replace(path, text.as_bytes()).with_context(|| path.display().to_string())?;
    for program in &left {
        let (path, most) = (path_of(program), limits::TRAVELLING_BYTES);
        note(format!(
            "{path}: left out: an exported profile is limited to {most} bytes"
        ));
    }
    Ok(Outcome::of(left.is_empty()))
}
