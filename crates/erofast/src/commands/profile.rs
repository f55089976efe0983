//! `erofast profile`: lists, shows, trims and removes launch profiles.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use erofast_cli::units::{count, size};
use erofast_cli::{Outcome, one_line, print_json};
use erofs_engine::{Engine, EngineOptions, WorkersMode, remote};
use erofs_fuse::note;
use launch_profile::{
    Decoded, Error, ImageIdentity, Learned, PAGE, Profile, Program, RecordedFile, Trim, limits,
};
use rustix::fs::OFlags;
use serde_json::{Value, json};

use crate::cli::{
    ProfileListArgs, ProfileRemoveArgs, ProfileShowArgs, ProfileTrimArgs, RemoteArgs,
};
use crate::text::{name, time};

/// Printed of an image that has none.
const NONE: &str = "no launches were learned of it";

/// Runs `profile list`.
pub fn list(args: &ProfileListArgs) -> anyhow::Result<Outcome> {
    let mut found = match args.images.is_empty() {
        true => files(None)?,
        false => Vec::new(),
    };
    for image in &args.images {
        let (_, learned) = learned_of(image, &args.remote)?;
        if learned.is_empty() && !args.json {
            outln!("{}: {NONE}", remote::shown(image));
        }
        found.extend(learned);
    }
    if found.is_empty() && args.images.is_empty() && !args.json {
        let folder = erofs_fuse::profile_folder()?;
        outln!("no launches were learned in {}", folder.display());
    }
    let (mut images, mut outcome) = (Vec::new(), Outcome::Fine);
    // No fault: mounts write them anew.
    let mut of_other_versions = Vec::new();
    for (path, learned) in found {
        match learned {
            Ok(learned) => images.push((path, learned)),
            Err(error) if is_of_another_version(&error) => of_other_versions.push((path, error)),
            Err(error) => {
                note(one_line(&error));
                outcome = Outcome::Faulty;
            }
        }
    }
    note_other_versions(&of_other_versions);
    if args.json {
        let image = |(path, learned): &(PathBuf, Learned)| {
            json!({
                "file": path.display().to_string(),
                "uuid": learned.image.map(|image| image.to_string()),
                "build_time": learned.image.map(|image| image.build_time),
                "decoded_bytes": bytes_of(&kept(path, learned.image.as_ref())),
                "programs": learned.programs.iter().map(short).collect::<Vec<_>>(),
            })
        };
        let images: Vec<Value> = images.iter().map(image).collect();
        print_json(&json!({"images": images}))?;
        return Ok(outcome);
    }
    for (path, learned) in &images {
        outln!("{}", path.display());
        match &learned.image {
            Some(image) => outln!("  image made {} UTC", time(image.build_time.cast_signed())),
            None => outln!("  for any image with these files"),
        }
        for program in &learned.programs {
            outln!("  {}", line(program));
        }
        match bytes_of(&kept(path, learned.image.as_ref())) {
            0 => {}
            bytes => outln!("  {} are kept decoded", size(bytes)),
        }
    }
    Ok(outcome)
}

/// One line, however many there are.
fn note_other_versions(found: &[(PathBuf, anyhow::Error)]) {
    match found {
        [] => {}
        [(_, error)] => note(one_line(error)),
        [(_, error), others @ ..] => {
            let others = match others.len() {
                1 => "so is another one".to_owned(),
                count => format!("so are {count} others"),
            };
            let line = one_line(error);
            note(format!(
                "{line}; {others} (erofast profile remove FILE removes one)"
            ));
        }
    }
}

/// Runs `profile show`.
pub fn show(args: &ProfileShowArgs) -> anyhow::Result<Outcome> {
    let (image, files) = named(&args.profile, &args.remote)?;
    let mut programs = Vec::new();
    for (_, learned) in files {
        programs.extend(learned?.programs);
    }
    let mut all = Profile::default();
    programs.iter().for_each(|one| all.merge(&one.profile));
    if args.list {
        print_paths(&all, if args.null { 0 } else { b'\n' })?;
    } else if args.json {
        let program = |program: &Program| {
            let (mut shown, one) = (report(&program.profile, &image), short(program));
            for (key, value) in one.as_object().into_iter().flatten() {
                shown[key] = shown.get(key).unwrap_or(value).clone();
            }
            shown
        };
        let mut shown = report(&all, &image);
        shown["programs"] = programs.iter().map(program).collect();
        print_json(&shown)?;
    } else {
        outln!("image:       {image}");
        for program in &programs {
            outln!("program:     {}", line(program));
            print(&program.profile)?;
        }
    }
    Ok(Outcome::Fine)
}

/// Runs `profile remove`.
pub fn remove(args: &ProfileRemoveArgs) -> anyhow::Result<Outcome> {
    let (image, found) = named(&args.profile, &args.remote)?;
    let mut files = Vec::new();
    for (file, learned) in found {
        let learned = match learned {
            // Whatever it holds, it is ours.
            Err(_) if args.programs.is_empty() && is_ours(&file) => Learned {
                image: Some(image),
                ..Learned::default()
            },
            learned => learned?,
        };
        files.push((file, learned));
    }
    let known = files.iter().flat_map(|(_, learned)| &learned.programs);
    let known: Vec<String> = known.map(path_of).collect();
    if let Some(path) = args.programs.iter().find(|path| !known.contains(path)) {
        let shown = remote::shown(&args.profile);
        bail!("{shown}: {path}: was not learned");
    }
    for (file, learned) in &mut files {
        remove_from(file, learned, &args.programs).with_context(|| file.display().to_string())?;
    }
    Ok(Outcome::Fine)
}

/// Programs as `profile list` names them, of a profile or of those that were learned of an image.
pub fn programs(path: &Path, flags: &RemoteArgs) -> anyhow::Result<Vec<String>> {
    let mut programs = Vec::new();
    for (_, learned) in learned_of(path, flags)?.1 {
        programs.extend(learned?.programs.iter().map(path_of));
    }
    Ok(programs)
}

/// Without programs all of them go.
fn remove_from(file: &Path, learned: &mut Learned, programs: &[String]) -> io::Result<()> {
    for (path, _) in kept(file, learned.image.as_ref()) {
        fs::remove_file(&path)?;
    }
    let before = learned.programs.len();
    let stays = |program: &Program| !programs.is_empty() && !programs.contains(&path_of(program));
    learned.programs.retain(stays);
    match learned.programs.len() {
        0 => fs::remove_file(file),
        left if left < before => replace(file, learned.to_text().as_bytes()),
        _ => Ok(()),
    }
}

/// Profiles, or why a file has none.
type Files = Vec<(PathBuf, anyhow::Result<Learned>)>;

/// The profiles that mounts have learned, of one image or of all, or why a file has none.
fn files(of: Option<&ImageIdentity>) -> anyhow::Result<Files> {
    let folder = erofs_fuse::profile_folder()?;
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).into_iter().flatten() {
        let path = entry.with_context(|| folder.display().to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Others write here at the same time, and not only these files.
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

fn is_of_another_version(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Version(_)))
}

/// As [`learned_of`], but at least one.
fn named(path: &Path, flags: &RemoteArgs) -> anyhow::Result<(ImageIdentity, Files)> {
    let (image, files) = learned_of(path, flags)?;
    ensure!(!files.is_empty(), "{}: {NONE}", remote::shown(path));
    Ok((image, files))
}

/// The profile at a path, or those that were learned of the image there: mounts with `subdir=`
/// have their own.
fn learned_of(path: &Path, flags: &RemoteArgs) -> anyhow::Result<(ImageIdentity, Files)> {
    let shown = remote::shown(path);
    let image = match read(path) {
        _ if remote::url(path).is_some() => image_at(path, flags)?,
        Err(error) if !is_ours(path) && error.downcast_ref() == Some(&Error::Magic) => {
            image_at(path, flags).with_context(|| format!("{shown}: not a launch profile"))?
        }
        read => {
            let image = read
                .as_ref()
                .ok()
                .and_then(|one| one.image)
                .unwrap_or_default();
            return Ok((image, vec![(path.to_owned(), read)]));
        }
    };
    Ok((image, files(Some(&image))?))
}

/// Whether it has the place and the end of the name of a learned profile.
fn is_ours(path: &Path) -> bool {
    let folder = path.parent().and_then(|folder| folder.canonicalize().ok());
    let ours = erofs_fuse::profile_folder().ok();
    let ours = ours.and_then(|ours| ours.canonicalize().ok());
    path.extension().is_some_and(|end| end == "profile") && ours.is_some() && folder == ours
}

fn image_at(path: &Path, flags: &RemoteArgs) -> anyhow::Result<ImageIdentity> {
    ensure!(
        !path.is_dir(),
        "{}: is a directory; profiles are named by the path of the image",
        path.display()
    );
    let mut options = EngineOptions {
        workers: WorkersMode::Inline,
        ..EngineOptions::default()
    };
    flags.apply(&mut options)?;
    let engine = Engine::open(path, &options)?;
    Ok(erofs_fuse::profile_identity(&engine))
}

/// Files of decoded bytes of an image beside its profile, and their bytes.
fn kept(profile: &Path, image: Option<&ImageIdentity>) -> Vec<(PathBuf, u64)> {
    let folder = profile.parent().unwrap_or(profile).join(".");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let kept = entries.filter_map(|entry| {
        let path = entry.path();
        path.extension().filter(|end| *end == "decoded")?;
        let decoded = Decoded::open(File::open(&path).ok()?).ok()?;
        let bytes = entry.metadata().ok()?.len();
        (Some(&decoded.image) == image).then_some((path, bytes))
    });
    kept.collect()
}

fn bytes_of(files: &[(PathBuf, u64)]) -> u64 {
    files.iter().map(|(_, bytes)| bytes).sum()
}

fn path_of(program: &Program) -> String {
    name(&program.path)
}

fn line(program: &Program) -> String {
    let (path, bytes) = (path_of(program), size(program.profile.bytes()));
    let launches = count(program.launches.into(), "launch");
    let files = count(program.profile.files.len() as u64, "file");
    let mut line = format!("{path}: {launches}, {bytes} in {files}");
    if let Some(limit) = limit_of(&program.trim) {
        line.push_str(&format!(", trimmed to {limit}"));
    }
    line
}

/// What a profile was trimmed to.
fn limit_of(trim: &Trim) -> Option<String> {
    let all = Trim::default();
    let until = (trim.until_ms != all.until_ms).then(|| format!("{} ms", trim.until_ms));
    let bytes = (trim.bytes != all.bytes).then(|| size(trim.bytes));
    let limits: Vec<String> = until.into_iter().chain(bytes).collect();
    (!limits.is_empty()).then(|| limits.join(" and "))
}

fn short(program: &Program) -> Value {
    let all = Trim::default();
    json!({
        "path": path_of(program),
        "nid": null,
        "launches": program.launches,
        "idle_mounts": program.idle_mounts,
        "files": program.profile.files.len(),
        "bytes": program.profile.bytes(),
        "until_ms": (program.trim.until_ms != all.until_ms).then_some(program.trim.until_ms),
        "bytes_at_most": (program.trim.bytes != all.bytes).then_some(program.trim.bytes),
    })
}

/// Runs `profile trim`.
pub fn trim(args: &ProfileTrimArgs) -> anyhow::Result<Outcome> {
    let mib = |mib: u32| u64::from(mib) << 20;
    let trim = Trim {
        until_ms: args.until.unwrap_or(u32::MAX),
        bytes: args.size.map_or(u64::MAX, mib),
    };
    let (_, found) = named(&args.profile, &args.remote)?;
    let shown = remote::shown(&args.profile);
    ensure!(
        args.output.is_none() || found.len() == 1,
        "{shown}: -o takes one profile, and mounts with subdir= learned their own: name one of {}",
        found
            .iter()
            .map(|(file, _)| file.display().to_string())
            .collect::<Vec<_>>()
            .join(", ")
    );
    for (file, learned) in found {
        let mut learned = learned?;
        learned
            .programs
            .iter_mut()
            .for_each(|program| program.trim(trim));
        let path = args.output.as_ref().unwrap_or(&file);
        replace(path, learned.to_text().as_bytes()).with_context(|| path.display().to_string())?;
    }
    Ok(Outcome::Fine)
}

fn read(path: &Path) -> anyhow::Result<Learned> {
    let context = || path.display().to_string();
    if is_ours(path) && path.is_symlink() {
        bail!(
            "{}: is a symbolic link, which no mount follows: remove it",
            path.display()
        );
    }
    let mut bytes = Vec::new();
    // A FIFO would wait for its writer.
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
    Learned::parse_any(&bytes).with_context(context)
}

/// All at once or not at all, with the mode of the file that is replaced, which a symbolic link may
/// name. What is no regular file is written to.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
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
            // Only root can do that.
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

fn print_paths(profile: &Profile, end: u8) -> io::Result<()> {
    let mut out = BufWriter::new(erofast_cli::stdout());
    for file in &profile.files {
        out.write_all(&profile.path(&file.name))?;
        out.write_all(&[end])?;
    }
    out.flush()
}

/// Files, and the bytes of each that were read.
fn files_with_bytes(profile: &Profile) -> impl Iterator<Item = (&RecordedFile, u64)> {
    let mut bytes: HashMap<&RecordedFile, u64> = HashMap::new();
    for (file, range) in profile.ranges() {
        *bytes.entry(file).or_default() += range.end - range.start;
    }
    let files = profile.files.iter();
    files.map(move |file| (file, bytes.get(file).copied().unwrap_or(0)))
}

/// With the root, which is always listed.
fn listed_directories(profile: &Profile) -> usize {
    let directories = profile.directories.iter();
    let listed = directories.filter(|directory| directory.listed_ms.is_some());
    listed.count() + 1
}

fn path(profile: &Profile, file: &RecordedFile) -> String {
    String::from_utf8_lossy(&profile.path(&file.name)).into_owned()
}

fn report(profile: &Profile, image: &ImageIdentity) -> Value {
    let files = files_with_bytes(profile);
    let listed = listed_directories(profile);
    json!({
        "uuid": image.to_string(),
        "milliseconds": profile.lasts_ms(),
        "bytes": profile.bytes(),
        "pages": profile.windows.iter().map(|window| window.bytes() / PAGE).sum::<u64>(),
        "listed_directories": listed,
        "names": profile.names.len(),
        "files": files.map(|(file, bytes)| json!({
            "path": path(profile, file),
            "nid": null,
            "size": file.size,
            "bytes": bytes,
        })).collect::<Vec<_>>(),
    })
}

fn print(profile: &Profile) -> anyhow::Result<()> {
    let listed = listed_directories(profile);
    outln!("time:        {} ms", profile.lasts_ms());
    outln!("pages:       {}", size(profile.bytes()));
    outln!("directories: {listed} listed");
    outln!("names:       {} looked up", profile.names.len());
    outln!("files:       {}", profile.files.len());
    for (file, bytes) in files_with_bytes(profile) {
        let path = name(&profile.path(&file.name));
        outln!("  {:>10} of {:>10}  {path}", size(bytes), size(file.size));
    }
    Ok(())
}
