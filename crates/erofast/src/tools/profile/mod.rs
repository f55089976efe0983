//! `erofast profile`: records, exports, merges, lists, shows, trims and removes launch profiles.

mod files;
mod record;
mod travelling;

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use erofast_cli::units::{count, size};
use erofast_cli::{Outcome, one_line, print_json};
use erofs_engine::remote;
use erofs_mount::note;
use launch_profile::{Decoded, ImageIdentity, Learned, PAGE, Profile, Program, RecordedFile, Trim};
use serde_json::{Value, json};

use crate::cli::tools::images::OpeningArgs;
use crate::cli::tools::profile::{
    ProfileListArgs, ProfileRemoveArgs, ProfileShowArgs, ProfileTrimArgs,
};
use crate::tools::text::{name, time};
use files::{
    Found, NONE, files, is_of_another_version, is_ours, learned_of, named, only, replace,
    travelling_of,
};

pub use record::record;
pub use travelling::{export, merge};

/// Runs `profile list`.
pub fn list(args: &ProfileListArgs) -> anyhow::Result<Outcome> {
    let mut found: Vec<Found> = match args.images.is_empty() {
        true => files(None)?.into_iter().map(Found::here).collect(),
        false => Vec::new(),
    };
    for image in &args.images {
        let (_, learned) = learned_of(image, &args.opening)?;
        let is_profile = learned.iter().any(|(path, _)| path == image);
        let travelling = match is_profile {
            true => Vec::new(),
            false => travelling_of(image, &args.opening)?,
        };
        if learned.is_empty() && travelling.is_empty() && !args.json {
            outln!("{}: {NONE}", remote::shown(image));
        }
        found.extend(learned.into_iter().map(Found::here).chain(travelling));
    }
    if found.is_empty() && args.images.is_empty() && !args.json {
        let folder = erofs_mount::profile_folder()?;
        outln!("no launches have been learned in {}", folder.display());
    }
    let (mut images, mut outcome) = (Vec::new(), Outcome::Fine);
    // Profiles of other versions are not faults: mounts replace them.
    let mut of_other_versions = Vec::new();
    for Found {
        path,
        origin,
        learned,
    } in found
    {
        match learned {
            Ok(learned) => images.push((path, origin, learned)),
            Err(error) if is_of_another_version(&error) => of_other_versions.push((path, error)),
            Err(error) => {
                note(one_line(&error));
                outcome = Outcome::Faulty;
            }
        }
    }
    note_other_versions(&of_other_versions);
    if args.json {
        let image = |(path, origin, learned): &(PathBuf, Option<&str>, Learned)| {
            json!({
                "file": path.display().to_string(),
                "origin": origin,
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
    for (path, origin, learned) in &images {
        outln!("{}", path.display());
        match (origin, &learned.image) {
            (Some("beside"), _) => outln!("  beside the image"),
            (Some("image"), _) => outln!("  in the image"),
            (_, Some(image)) => outln!("  image made {} UTC", time(image.build_time.cast_signed())),
            (_, None) => outln!("  fits any image with these files"),
        }
        for program in &learned.programs {
            outln!("  {}", line(program));
        }
        match bytes_of(&kept(path, learned.image.as_ref())) {
            0 => {}
            bytes => outln!("  {} kept decoded", size(bytes)),
        }
    }
    Ok(outcome)
}

/// Prints one line about profiles of other versions, however many there are.
fn note_other_versions(found: &[(PathBuf, anyhow::Error)]) {
    match found {
        [] => {}
        [(_, error)] => note(one_line(error)),
        [(_, error), others @ ..] => {
            let others = match others.len() {
                1 => "and another one".to_owned(),
                count => format!("and {count} others"),
            };
            let line = one_line(error);
            note(format!(
                "{line} ({others} like it; erofast profile remove FILE removes one)"
            ));
        }
    }
}

/// Runs `profile show`.
pub fn show(args: &ProfileShowArgs) -> anyhow::Result<Outcome> {
    let (image, files) = named(&args.profile, &args.opening)?;
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
            let (mut shown, one) = (report(&program.profile, image), short(program));
            for (key, value) in one.as_object().into_iter().flatten() {
                shown[key] = shown.get(key).unwrap_or(value).clone();
            }
            shown
        };
        let mut shown = report(&all, image);
        shown["programs"] = programs.iter().map(program).collect();
        print_json(&shown)?;
    } else {
        match image {
            Some(image) => outln!("image:       {image}"),
            None => outln!("image:       any with these files"),
        }
        for program in &programs {
            outln!("program:     {}", line(program));
            print(&program.profile)?;
        }
    }
    Ok(Outcome::Fine)
}

/// Runs `profile remove`.
pub fn remove(args: &ProfileRemoveArgs) -> anyhow::Result<Outcome> {
    let (image, found) = named(&args.profile, &args.opening)?;
    let mut files = Vec::new();
    for (file, learned) in found {
        let learned = match learned {
            // A mount wrote this file, so it may be removed whatever it contains.
            Err(_) if args.programs.is_empty() && is_ours(&file) => Learned {
                image,
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
        bail!("{shown}: no profile of {path}");
    }
    for (file, learned) in &mut files {
        remove_from(file, learned, &args.programs)?;
    }
    Ok(Outcome::Fine)
}

/// The programs in a profile, or in all profiles learned from an image, as `profile list` names
/// them.
pub fn programs(path: &Path, opening: &OpeningArgs) -> anyhow::Result<Vec<String>> {
    let mut programs = Vec::new();
    for (_, learned) in learned_of(path, opening)?.1 {
        programs.extend(learned?.programs.iter().map(path_of));
    }
    Ok(programs)
}

/// Removes these programs (all, if none are named) from a file, and deletes the decoded bytes kept
/// beside it. Deletes the file if no program is left in it.
fn remove_from(file: &Path, learned: &mut Learned, programs: &[String]) -> anyhow::Result<()> {
    for (path, _) in kept(file, learned.image.as_ref()) {
        fs::remove_file(&path).with_context(|| path.display().to_string())?;
    }
    let before = learned.programs.len();
    let stays = |program: &Program| !programs.is_empty() && !programs.contains(&path_of(program));
    learned.programs.retain(stays);
    let changed = match learned.programs.len() {
        0 => fs::remove_file(file),
        left if left < before => replace(file, learned.to_text().as_bytes()),
        _ => Ok(()),
    };
    changed.with_context(|| file.display().to_string())
}

/// Files beside a profile that hold decoded bytes of the image, with their sizes.
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

/// The limit that a profile was trimmed to.
fn limit_of(trim: &Trim) -> Option<String> {
    let until = trim.until_ms.map(|until| format!("{until} ms"));
    let limits: Vec<String> = until.into_iter().chain(trim.bytes.map(size)).collect();
    (!limits.is_empty()).then(|| limits.join(" and "))
}

fn short(program: &Program) -> Value {
    json!({
        "path": path_of(program),
        "nid": null,
        "launches": program.launches,
        "idle_mounts": program.idle_mounts,
        "files": program.profile.files.len(),
        "bytes": program.profile.bytes(),
        "until_ms": program.trim.until_ms,
        "bytes_at_most": program.trim.bytes,
    })
}

/// Runs `profile trim`.
pub fn trim(args: &ProfileTrimArgs) -> anyhow::Result<Outcome> {
    let trim = Trim {
        until_ms: args.until,
        bytes: args.size.map(|mib| u64::from(mib) << 20),
    };
    let (_, mut found) = named(&args.profile, &args.opening)?;
    if args.output.is_some() {
        let shown = remote::shown(&args.profile);
        found = vec![only(found, &shown, "-o takes only one profile")?];
    }
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

fn print_paths(profile: &Profile, end: u8) -> io::Result<()> {
    let mut out = BufWriter::new(erofast_cli::stdout());
    for file in &profile.files {
        out.write_all(&profile.path(&file.name))?;
        out.write_all(&[end])?;
    }
    out.flush()
}

/// Files, each with the number of bytes read from it.
fn files_with_bytes(profile: &Profile) -> impl Iterator<Item = (&RecordedFile, u64)> {
    let mut bytes: HashMap<&RecordedFile, u64> = HashMap::new();
    for (file, range) in profile.ranges() {
        *bytes.entry(file).or_default() += range.end - range.start;
    }
    let files = profile.files.iter();
    files.map(move |file| (file, bytes.get(file).copied().unwrap_or(0)))
}

/// Number of directories that the profile lists, including the root, which is always listed.
fn listed_directories(profile: &Profile) -> usize {
    let directories = profile.directories.iter();
    let listed = directories.filter(|directory| directory.listed_ms.is_some());
    listed.count() + 1
}

fn path(profile: &Profile, file: &RecordedFile) -> String {
    String::from_utf8_lossy(&profile.path(&file.name)).into_owned()
}

fn report(profile: &Profile, image: Option<ImageIdentity>) -> Value {
    let files = files_with_bytes(profile);
    let listed = listed_directories(profile);
    json!({
        "uuid": image.map(|image| image.to_string()),
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
