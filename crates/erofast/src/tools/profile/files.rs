//! Files of launch profiles: where they are, and how they are read and replaced.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use erofs_engine::erofs_format::{ErrorClass, FileType};
use erofs_engine::{Engine, EngineOptions, WorkersMode, remote};
use launch_profile::{Error, ImageIdentity, Learned, limits};
use rustix::fs::OFlags;

use crate::cli::tools::images::{OpeningArgs, allow_many_files};

/// Printed for an image without profiles.
pub(super) const NONE: &str = "no launches have been learned";

/// Files with their profiles, or with the reasons why they cannot be read.
pub(super) type Files = Vec<(PathBuf, anyhow::Result<Learned>)>;

/// The profiles that mounts have learned, from one image or from all.
pub(super) fn files(of: Option<&ImageIdentity>) -> anyhow::Result<Files> {
    let folder = erofs_mount::profile_folder()?;
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).into_iter().flatten() {
        let path = entry.with_context(|| folder.display().to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Other processes write files into this directory at the same time, including files of
        // other kinds.
        let is_one = of.is_none_or(|image| image.is_named_by(&name));
        if !is_one || !name.ends_with(".profile") || path.symlink_metadata().is_err() {
            continue;
        }
        match read(&path) {
            Ok(learned) if learned.programs.is_empty() => {}
            learned => files.push((path, learned)),
        }
    }
    files.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(files)
}

pub(super) fn is_of_another_version(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Version(_)))
}

/// Like [`learned_of`], but fails if there are none.
pub(super) fn named(
    path: &Path,
    opening: &OpeningArgs,
) -> anyhow::Result<(Option<ImageIdentity>, Files)> {
    let (image, files) = learned_of(path, opening)?;
    ensure!(!files.is_empty(), "{}: {NONE}", remote::shown(path));
    Ok((image, files))
}

/// The profile at a path, or all profiles learned from the image there. An image may have several,
/// because mounts with `subdir=` have profiles of their own.
pub(super) fn learned_of(
    path: &Path,
    opening: &OpeningArgs,
) -> anyhow::Result<(Option<ImageIdentity>, Files)> {
    let shown = remote::shown(path);
    let image = match read(path) {
        _ if remote::url(path).is_some() => image_at(path, opening)?,
        Err(error) if !is_ours(path) && error.downcast_ref() == Some(&Error::Magic) => {
            image_at(path, opening).map_err(|error| match error.downcast_ref() {
                Some(erofs_engine::Error::Image { source, .. })
                    if source.class() == ErrorClass::NotErofs =>
                {
                    anyhow::anyhow!("{shown}: neither a launch profile nor an EROFS image")
                }
                _ => error.context(format!("{shown}: not a launch profile")),
            })?
        }
        read => {
            let image = read.as_ref().ok().and_then(|one| one.image);
            return Ok((image, vec![(path.to_owned(), read)]));
        }
    };
    Ok((Some(image), files(Some(&image))?))
}

/// A profile, its origin (`None` if the user named its file), and its content, or the reason why it
/// cannot be read.
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) origin: Option<&'static str>,
    pub(super) learned: anyhow::Result<Learned>,
}

impl Found {
    /// Creates the entry for a profile that was learned here.
    pub(super) fn here((path, learned): (PathBuf, anyhow::Result<Learned>)) -> Self {
        Self {
            origin: is_ours(&path).then_some("here"),
            path,
            learned,
        }
    }
}

/// The profiles that travel with an image: beside it, if it is a file, and inside it.
pub(super) fn travelling_of(image: &Path, opening: &OpeningArgs) -> anyhow::Result<Vec<Found>> {
    let mut found = Vec::new();
    let beside = erofs_mount::profile_beside(image);
    if remote::url(image).is_none() && beside.exists() {
        found.push(Found {
            learned: read(&beside),
            path: beside,
            origin: Some("beside"),
        });
    }
    let engine = engine_of(image, opening)?;
    let name = erofs_mount::PROFILE_IN_MOUNT;
    let inside = engine.resolve(name.as_bytes(), false);
    if let Ok(inode) = inside.as_ref()
        && inode.file_type() == FileType::Regular
    {
        let length = inode.size.min(limits::TRAVELLING_BYTES as u64 + 1);
        let mut bytes = vec![0; usize::try_from(length)?];
        let read = engine.read_at(&engine.waiting(), inode, 0, &mut bytes);
        let path = image.join(name);
        let learned = read.map_err(anyhow::Error::from).and_then(|_| {
            let learned = Learned::parse_travelling(&bytes);
            Ok(learned?)
        });
        found.push(Found {
            learned: learned.with_context(|| remote::shown(&path)),
            path,
            origin: Some("image"),
        });
    }
    Ok(found)
}

/// Whether a path has the folder and suffix of a learned profile.
pub(super) fn is_ours(path: &Path) -> bool {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    let ours = erofs_mount::profile_folder().ok();
    let ours = ours.and_then(|ours| ours.canonicalize().ok());
    path.extension().is_some_and(|end| end == "profile") && ours.is_some() && folder == ours
}

pub(super) fn image_at(path: &Path, opening: &OpeningArgs) -> anyhow::Result<ImageIdentity> {
    let engine = engine_of(path, opening)?;
    Ok(erofs_mount::profile_identity(&engine))
}

fn engine_of(path: &Path, opening: &OpeningArgs) -> anyhow::Result<Arc<Engine>> {
    ensure!(
        !path.is_dir(),
        "{}: is a directory; name a profile by the path of its image",
        path.display()
    );
    let mut options = EngineOptions {
        workers: WorkersMode::Inline,
        ..EngineOptions::default()
    };
    opening.apply(&mut options)?;
    allow_many_files();
    Ok(Engine::open(path, &options)?)
}

pub(super) fn read(path: &Path) -> anyhow::Result<Learned> {
    let context = || path.display().to_string();
    if is_ours(path) && path.is_symlink() {
        bail!(
            "{}: a symbolic link, which mounts do not follow: remove it",
            path.display()
        );
    }
    let mut bytes = Vec::new();
    // Opening a FIFO would otherwise block until it has a writer.
    let mut options = File::options();
    let options = options
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path).with_context(context)?;
    let metadata = file.metadata().with_context(context)?;
    if !metadata.is_file() {
        return Err(Error::Magic).with_context(context);
    }
    let most = limits::LEARNED_BYTES as u64 + 1;
    file.take(most)
        .read_to_end(&mut bytes)
        .with_context(context)?;
    let mut learned = Learned::parse_any(&bytes).with_context(context)?;
    learned.programs.retain(|program| !program.is_note());
    Ok(learned)
}

/// Returns the only profile found. If there are several, fails with an error that contains `takes`,
/// the reason why exactly one is needed.
pub(super) fn only(
    mut found: Files,
    shown: &str,
    takes: &str,
) -> anyhow::Result<(PathBuf, anyhow::Result<Learned>)> {
    let names = found.iter().map(|(file, _)| file.display().to_string());
    let names = names.collect::<Vec<_>>().join(", ");
    ensure!(
        found.len() == 1,
        "{shown}: {takes}, but mounts with subdir= have profiles of their own: name one of {names}"
    );
    Ok(found.remove(0))
}

/// Replaces a file atomically, keeping its mode; the path may be a symlink to it. A file that is
/// not regular is written in place.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if path.as_os_str() == "-" {
        return erofast_cli::stdout().write_all(bytes);
    }
    let path = &path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let before = fs::metadata(path).ok();
    if before.as_ref().is_some_and(|before| !before.is_file()) {
        return File::options().write(true).open(path)?.write_all(bytes);
    }
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let mut file = File::create_new(&temporary)?;
    let written = file.write_all(bytes).and_then(|()| match &before {
        Some(before) => {
            // Only root can change the owner.
            let _ = chown(&temporary, Some(before.uid()), Some(before.gid()));
            fs::set_permissions(&temporary, before.permissions())
        }
        None => Ok(()),
    });
    written
        .and_then(|()| fs::rename(&temporary, path))
        .inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
}
